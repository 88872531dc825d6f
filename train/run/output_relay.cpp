#include "train/run/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/replace_file.h"

namespace trireme {
namespace {

constexpr size_t kTail = 64 << 10;                       // bytes that are kept
constexpr int kWidthPeriod = 100;                        // milliseconds between two looks at the terminal's width
constexpr auto kLastOutput = std::chrono::seconds(2);    // for output after the child's end
constexpr int kStandardOutput = 1, kStandardErrors = 2;  // file descriptors

bool same_file(int a, int b) {
  struct stat one {
  }, other{};
  return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

OutputRelay::OutputRelay() : with_stdout_(same_file(kStandardOutput, kStandardErrors)), terminal_(isatty(kStandardErrors) != 0) {
  std::array<int, 2> ends{};
  if (terminal_ ? open_terminal() : pipe2(ends.data(), O_CLOEXEC) == 0) {
    if (!terminal_) ours_ = ends[0], theirs_ = ends[1];
  }
}

// Raw, so that bytes pass unchanged; the real terminal does what it does.
bool OutputRelay::open_terminal() {
  ours_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 128> name{};
  if (ours_ >= 0 && grantpt(ours_) == 0 && unlockpt(ours_) == 0 && ptsname_r(ours_, name.data(), name.size()) == 0)
    theirs_ = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (theirs_ < 0) {
    if (ours_ >= 0) close(std::exchange(ours_, -1));
    return false;
  }
  termios settings{};
  if (tcgetattr(theirs_, &settings) == 0) settings.c_oflag &= ~static_cast<tcflag_t>(OPOST), tcsetattr(theirs_, TCSANOW, &settings);
  follow_width();
  return true;
}

void OutputRelay::follow_width() {
  winsize real{}, shown{};
  if (ioctl(kStandardErrors, TIOCGWINSZ, &real) != 0 || ioctl(ours_, TIOCGWINSZ, &shown) != 0) return;
  if (real.ws_col != shown.ws_col || real.ws_row != shown.ws_row) ioctl(ours_, TIOCSWINSZ, &real);
}

void OutputRelay::become_output() const {
  if (theirs_ < 0) return;
  dup2(theirs_, kStandardErrors);
  if (with_stdout_) dup2(theirs_, kStandardOutput);
}

void OutputRelay::begin() {
  if (theirs_ < 0) return;
  close(std::exchange(theirs_, -1));
  thread_ = std::thread([this] { relay(); });
}

void OutputRelay::relay() {
  std::array<char, 16 << 10> bytes{};
  for (;;) {
    pollfd wait{.fd = ours_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, kWidthPeriod) <= 0) {
      if (terminal_) follow_width();
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      continue;
    }
    const ssize_t count = read(ours_, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count > 0)
      (void)write_all(kStandardErrors, {bytes.data(), static_cast<size_t>(count)});  // a reader that is gone ends no run
    const std::lock_guard lock(mutex_);
    if (count > 0) tail_.append(bytes.data(), static_cast<size_t>(count));
    if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
    if (count > 0) continue;
    ended_ = true;  // a pseudo-terminal says so by an error
    changed_.notify_all();
    return;
  }
}

std::string OutputRelay::heard() {
  std::unique_lock lock(mutex_);
  if (thread_.joinable()) changed_.wait_for(lock, kLastOutput, [&] { return ended_; });
  return tail_.size() > kTail ? tail_.substr(tail_.size() - kTail) : tail_;
}

OutputRelay::~OutputRelay() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  if (thread_.joinable()) thread_.join();
  if (ours_ >= 0) close(ours_);
  if (theirs_ >= 0) close(theirs_);
}

}  // namespace trireme
