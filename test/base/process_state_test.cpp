#include "base/process_state.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "test/catch.h"

namespace trireme {
namespace {

// Waits until a child is as WUNTRACED, WEXITED, ... say, without reaping it.
void await(pid_t child, int what) {
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, what | WNOWAIT) == 0);
}

}  // namespace

TEST_CASE("a process that stops, ends and is gone is seen to, whatever its name") {
  CHECK_FALSE(state_of_process(getpid()).dead());
  CHECK(state_of_process(getpid()).parent == getppid());
  std::array<int, 2> named{};
  REQUIRE(pipe(named.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, ") Z 1 (\n) X");
    [[maybe_unused]] const auto written = write(named[1], "", 1);
    for (;;) pause();
  }
  char byte = 0;
  REQUIRE(read(named[0], &byte, 1) == 1);
  CHECK_FALSE(state_of_process(child).dead());
  CHECK(state_of_process(child).parent == getpid());
  kill(child, SIGSTOP), await(child, WSTOPPED);
  CHECK(state_of_process(child).letter == 'T');
  kill(child, SIGKILL), await(child, WEXITED);
  CHECK(state_of_process(child).letter == 'Z');
  CHECK(state_of_process(child).dead());
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(state_of_process(child).letter == 'X');
  CHECK(state_of_process(child).parent == 0);
  close(named[0]), close(named[1]);
}

}  // namespace trireme
