// The user's command for each committed checkpoint.
#include <filesystem>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {

TEST_CASE("a command of the user's is run for committed checkpoints, which stay as long as it needs them") {
  const Workplace place;
  const std::string copy =
      "checkpoint.command=sleep 0.3 && cp -r \"$TRIREME_CHECKPOINT\" \"copy-$TRIREME_STEP\" && echo copied $TRIREME_STEP";
  const Ended ended = place.train({"checkpoint.every=2", "train.steps=20", copy});
  succeed(ended);
  const std::string log = place.run("tiny", "checkpoint_command.log");
  CHECK_THAT(log, ContainsSubstring("copied 2\n") && ContainsSubstring("copied 20\n"));  // the first and, before the end, the last
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("checkpoint.command did not run for step "));
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

TEST_CASE("a command that fails is reported, and training continues") {
  const Workplace place;
  const Ended ended = place.train({"checkpoint.every=10", "checkpoint.command=echo no such bucket >&2; exit 7"});
  succeed(ended);
  CHECK_THAT(ended.out + ended.err,
             ContainsSubstring("checkpoint.command failed for step 20: exit code 7; see runs/tiny/checkpoint_command.log"));
  CHECK_THAT(place.run("tiny", "checkpoint_command.log"), ContainsSubstring("no such bucket"));
}

}  // namespace trireme
