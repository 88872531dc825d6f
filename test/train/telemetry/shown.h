// Captures the output of work to a file, or to a terminal of some width, as people see it.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "test/catch.h"
#include "test/data/scratch.h"

namespace trireme {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Puts a file in the place of a standard stream while it lives.
class Redirect {
 public:
  Redirect(int stream, int file) : stream_(stream), saved_(dup(stream)) { dup2(file, stream); }
  ~Redirect() {
    dup2(saved_, stream_);
    close(saved_);
  }

 private:
  int stream_, saved_;
};

// Output of `work` to a standard stream that is a file.
template <class Work>
std::string written_by(int stream, const Work& work) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("trireme-out" + std::to_string(getpid()) + "-" + std::to_string(stream));
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  {
    const Redirect redirect(stream, file);
    work();
  }
  close(file);
  const std::string text = read_text(path);
  std::filesystem::remove(path);
  return text;
}

// Output of `work` to a terminal of so many columns. "\r\n" stands for a newline, as terminals have
// it.
template <class Work>
std::string shown_by(unsigned short columns, const Work& work) {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(screen >= 0);
  REQUIRE(grantpt(screen) == 0);
  REQUIRE(unlockpt(screen) == 0);
  const int terminal = open(ptsname(screen), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(terminal, TIOCSWINSZ, &size) == 0);
  std::string shown;
  std::thread reader([&] {
    std::array<char, 4096> buffer;
    for (ssize_t got; (got = ::read(screen, buffer.data(), buffer.size())) > 0;)
      shown.append(buffer.data(), static_cast<size_t>(got));
  });
  {
    const Redirect redirect(STDOUT_FILENO, terminal);
    work();
  }
  close(terminal);
  reader.join();
  close(screen);
  return shown;
}

}  // namespace trireme
