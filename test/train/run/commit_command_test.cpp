// The user's command for each committed checkpoint.
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {

TEST_CASE("a command of the user's is run for committed checkpoints, which stay as long as it needs them") {
  const Workplace place;
  // The first step's command ends after the last commit.
  const std::string copy =
      "checkpoint.command=until test -e runs/tiny/checkpoints/step-00000020; do sleep 0.02; done; "
      "cp -r \"$TRIREME_CHECKPOINT\" \"copy-$TRIREME_STEP\" && echo copied $TRIREME_STEP";
  const Ended ended = place.train({"checkpoint.every=2", "train.steps=20", copy});
  succeed(ended);
  const std::string log = place.run("tiny", "checkpoint_command.log");
  CHECK_THAT(log, ContainsSubstring("copied 2\n") && ContainsSubstring("copied 20\n"));  // the first and, before the end, the last
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("checkpoint.command did not run for step 4"));
  for (const char* step : {"copy-2", "copy-20"}) {
    CAPTURE(step);
    CHECK(std::filesystem::exists(place.scratch / (std::string(step) + "/manifest.json")));
    CHECK(run_trireme(place.scratch.path(), {"checkpoint", "verify", step}).code == 0);
  }
}

TEST_CASE("a checkpoint whose command has not succeeded is given to it by the next start") {
  const Workplace place;
  const std::vector<std::string> settings{"checkpoint.every=10", "checkpoint.command=test -e there && echo copied $TRIREME_STEP"};
  succeed(place.train(settings));
  CHECK_THAT(place.run("tiny", "checkpoint_command.log"), !ContainsSubstring("copied"));
  write_text(place.scratch / "there", "");
  for (int start = 0; start < 2; ++start) succeed(place.train(settings));  // finished already
  CHECK(place.run("tiny", "checkpoint_command.log") == "copied 20\n");
}

TEST_CASE("a checkpoint is given to the command again if what it succeeded for was another save of that step") {
  const Workplace place;
  const std::vector<std::string> settings{"checkpoint.every=20", "checkpoint.command=echo copied $TRIREME_STEP"};
  succeed(place.train(settings));
  write_text(place.scratch / "runs/tiny/checkpoint_command.done", "20 0123456789abcdef\n");
  succeed(place.train(settings));
  CHECK(place.run("tiny", "checkpoint_command.log") == "copied 20\ncopied 20\n");
}

TEST_CASE("a command under mpirun that evaluates is a program of its own, and no rank of the run", "[unsanitized]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  const Ended ended = place.train(
      {"checkpoint.every=10", "checkpoint.command=" + program +
                                  " eval runs/tiny --shards shards/validation-00000.h5 && echo evaluated && env > environment"},
      2);
  succeed(ended);
  CHECK_THAT(place.run("tiny", "checkpoint_command.log"), ContainsSubstring("evaluated\n"));
  CHECK_THAT(ended.out + ended.err, !ContainsSubstring("checkpoint.command failed"));
  const std::string environment = read_text(place.scratch / "environment");
  CHECK_THAT(environment, ContainsSubstring("\nTRIREME_STEP=") && ContainsSubstring("PATH="));
  CHECK_THAT(environment, !ContainsSubstring("OMPI_COMM_WORLD_SIZE") && !ContainsSubstring("PMIX_RANK"));
}

TEST_CASE("a checkpoint that is damaged is not given to the command by the next start") {
  const Workplace place;
  const std::vector<std::string> settings{"checkpoint.every=10", "checkpoint.command=test -e there && echo copied $TRIREME_STEP"};
  succeed(place.train(settings));
  write_text(place.scratch / "there", "");
  write_text(place.scratch / "runs/tiny/checkpoints/step-00000020/manifest.json", "{}");
  succeed(place.train(settings));
  const std::string log = place.run("tiny", "checkpoint_command.log");
  CHECK_THAT(log, ContainsSubstring("copied 20\n"));  // once: the step that was saved again
  CHECK(log.find("copied 20\n") == log.rfind("copied 20\n"));
}

TEST_CASE("a command that fails is reported, and training continues") {
  const Workplace place;
  const Ended ended = place.train({"checkpoint.every=10", "checkpoint.command=echo no such bucket >&2; exit 7"});
  succeed(ended);
  CHECK_THAT(ended.out + ended.err,
             ContainsSubstring("checkpoint.command failed for step 20: exit code 7; see runs/tiny/checkpoint_command.log"));
  CHECK_THAT(place.run("tiny", "checkpoint_command.log"), ContainsSubstring("no such bucket"));
}

namespace {

// Leaves a process whose number is in child.pid, and never ends.
const std::string kEndless = "checkpoint.command=sleep 1000 & echo $! > child.pid; wait";

pid_t child_of_command(const Workplace& place, Process& run) {
  std::string number;
  while (run.running() && (number = read_text(place.scratch / "child.pid")).find('\n') == std::string::npos) usleep(1000);
  return number.empty() ? -1 : std::stoi(number);
}

bool gone_soon(pid_t process) {
  for (int wait = 0; wait < 500 && kill(process, 0) == 0; ++wait) usleep(10000);
  return kill(process, 0) != 0;
}

}  // namespace

TEST_CASE("a command that takes longer than its limit is ended with all it has started, and reported") {
  const Workplace place;
  Process run(place.scratch.path(), Workplace::arguments({"checkpoint.every=0", "checkpoint.command_timeout=0.5", kEndless}));
  const pid_t child = child_of_command(place, run);
  const Ended ended = run.wait();
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out + ended.err,
             ContainsSubstring("checkpoint.command failed for step 20: ended after checkpoint.command_timeout = 0.5 s"));
  REQUIRE(child > 0);
  CHECK(gone_soon(child));
}

TEST_CASE("a run that is asked to stop does not wait for an endless command for ever, and has written exit.json before",
          "[.][soak]") {
  const Workplace place;
  Process run(place.scratch.path(), Workplace::arguments({"checkpoint.every=0", kEndless}));
  const pid_t child = child_of_command(place, run);
  while (run.running() && place.run("tiny", "exit.json").empty()) usleep(1000);
  REQUIRE(run.running());  // the command still runs
  run.signal(SIGTERM);
  const Ended ended = run.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);  // all steps are done
  CHECK_THAT(ended.out + ended.err, ContainsSubstring("ended, since the run ends"));
  REQUIRE(child > 0);
  CHECK(gone_soon(child));
}

TEST_CASE("a command does not outlive a run that is killed, nor one that a second Ctrl-C ends") {
  for (const int signal : {SIGKILL, SIGINT}) {
    const Workplace place;
    Process run(place.scratch.path(), Workplace::arguments({"checkpoint.every=0", kEndless}));
    const pid_t child = child_of_command(place, run);
    REQUIRE(child > 0);
    run.signal(signal);
    if (signal == SIGINT) usleep(200000), run.signal(signal);
    CHECK(run.wait().code == (signal == SIGKILL ? 137 : 130));
    CHECK(gone_soon(child));
  }
}

}  // namespace trireme
