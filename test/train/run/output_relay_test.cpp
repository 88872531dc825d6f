// The output of a supervised command: unchanged, in order, on a terminal if the user is on one.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Writes to stdout and stderr in turn, without newlines and with bytes of all kinds; then says what its outputs are.
const char* const kTalker = R"sh(#!/bin/sh
i=0
while [ $i -lt 300 ]; do printf 'o%d\r' $i; printf 'e%d\033[K\200' $i >&2; i=$((i + 1)); done
if [ -t 1 ]; then printf ' stdout:terminal:%s' "$(stty size <&2)"; fi
if [ -t 2 ]; then printf ' stderr:terminal' >&2; fi
)sh";

std::string expected() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "o" + std::to_string(i) + "\re" + std::to_string(i) + "\033[K\200";
  return text;
}

std::string supervise_talker(const Workplace& place, const std::string& redirection) {
  write_text(place.scratch / "talker", kTalker);
  std::filesystem::permissions(place.scratch / "talker", std::filesystem::perms::owner_all);
  return std::string(TRIREME_BUILD) + "/trireme supervise -- ./talker train config.yaml " + redirection;
}

// Runs a command of the shell on a terminal of 91 columns, and returns what the terminal received.
std::string on_terminal(const Workplace& place, const std::string& command) {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY);
  char name[128];
  REQUIRE((ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0 && ptsname_r(ours, name, sizeof name) == 0));
  const int theirs = open(name, O_RDWR | O_NOCTTY);
  winsize size{};
  size.ws_col = 91, size.ws_row = 17;
  ioctl(theirs, TIOCSWINSZ, &size);
  Process process(place.scratch.path(), {"-c", command + " >" + name + " 2>&1"}, 1, "sh");
  std::string received;
  fcntl(ours, F_SETFL, O_NONBLOCK);
  for (bool last = false; !last;) {
    last = !process.running();
    usleep(1000);
    char bytes[4096];
    for (ssize_t n = 0; (n = read(ours, bytes, sizeof bytes)) > 0;) received.append(bytes, static_cast<size_t>(n));
  }
  close(theirs), close(ours);
  return received;
}

}  // namespace

TEST_CASE("supervise passes on what a command writes, byte for byte and in order", "[unsanitized]") {
  const Workplace place;
  const Ended one = Process(place.scratch.path(), {"-c", supervise_talker(place, "2>&1 | cat")}, 1, "sh").wait();
  CHECK(one.out == expected());
  const Ended two = Process(place.scratch.path(), {"-c", supervise_talker(place, "")}, 1, "sh").wait();
  CHECK(two.out.size() + two.err.size() == expected().size());
  CHECK(two.err.starts_with("e0\033[K\200e1"));
}

TEST_CASE("a command that supervise runs on a terminal has one, of the same width", "[unsanitized]") {
  const Workplace place;
  CHECK(on_terminal(place, supervise_talker(place, "")) == expected() + " stdout:terminal:17 91 stderr:terminal");
}

}  // namespace trireme
