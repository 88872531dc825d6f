// Runs whose disk is empty at a start: fetched from where they were uploaded, or not begun at all.
#include "train/run/fetch_checkpoints.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <list>

#include "checkpoint/reader.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/supervise.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The script that also speaks to object stores, with a directory in the place of one.
std::string object_store(const std::string& order) { return TRIREME_SOURCE "/scripts/object_store.sh " + order + " store"; }

// The system, with a clock of its own, which each sleep moves by half a second.
struct Fetching {
  std::list<OutputRelay> relays;
  SuperviseIo io{relays};
  std::string said;
  Clock::time_point time{};

  Fetching() {
    io.say = [this](const std::string& line) { said += line + "\n"; };
    io.now = [this] { return time; };
    io.sleep = [this](Clock::duration) { time += std::chrono::milliseconds(500), usleep(1000); };
    io.stop_signal = [] { return 0; };
  }
  Fetching(const Fetching&) = delete;
  Fetching& operator=(const Fetching&) = delete;
};

}  // namespace

TEST_CASE("a run whose disk is lost continues from what was uploaded, with the bits of an undisturbed run", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=400", "train.eval_every=0", "checkpoint.command=" + object_store("upload")};
  succeed(place.train({"train.steps=400", "train.eval_every=0", "train.name=whole"}));
  std::vector<std::string> words{"supervise", "--fetch", object_store("fetch"), "--", std::string(TRIREME_BUILD) + "/trireme"};
  for (const std::string& word : Workplace::arguments(settings)) words.push_back(word);
  REQUIRE(std::system(("cd " + place.scratch.path() + " && " + object_store("new")).c_str()) == 0);
  Process first(place.scratch.path(), words);
  while (first.running() && place.lines("tiny") < 60) usleep(1000);
  first.signal(SIGTERM);
  const Ended stopped = first.wait();
  INFO(stopped.err);
  REQUIRE(stopped.code == 75);
  CHECK_THAT(stopped.err, ContainsSubstring("supervise: --fetch found no checkpoint: the run begins"));
  REQUIRE_THAT(read_text(place.scratch / "store/latest"), ContainsSubstring("step-"));
  fs::remove_all(place.scratch / "runs/tiny");

  const Ended ended = Process(place.scratch.path(), words).wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("supervise: fetched step ") && ContainsSubstring(" into runs/tiny"));
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("resumed after step"));
  CHECK_FALSE(fs::exists(place.scratch / "runs/tiny/fetching"));
  CHECK(place.metrics("tiny") == place.metrics("whole"));
  CHECK(place.differ("whole", "tiny") == 0);
}

TEST_CASE("an object store that cannot be reached is not taken for an empty one") {
  const Scratch scratch;
  const auto code = [&](const std::string& order) {
    return WEXITSTATUS(std::system(("cd " + scratch.path() + " && TRIREME_RUN=run " + object_store(order) + " 2> err").c_str()));
  };
  CHECK(code("fetch") == 1);
  CHECK(code("new") == 0);
  CHECK(code("fetch") == 0);
  CHECK(code("new") == 1);  // a run that is there is not declared empty
  CHECK(code("push") == 2);
}

TEST_CASE("a fetch that fails is tried again, later and later, and a run that cannot be fetched is not begun") {
  const Scratch scratch;
  const std::string run = scratch / "runs/demo";
  Fetching fetching;
  CHECK(fetch_if_empty(fetching.io, "echo x >> " + scratch / "tries" + "; exit 3", run) == ExitCode::checkpoint);
  CHECK(read_text(scratch / "tries") == "x\nx\nx\nx\nx\n");
  CHECK_THAT(fetching.said, ContainsSubstring("--fetch ended with 3; try 2 of 5 in 1 s") &&
                                ContainsSubstring("try 5 of 5 in 8 s") && ContainsSubstring("was not begun anew"));
  CHECK(fetching.time - Clock::time_point{} >= std::chrono::seconds(15));
  Fetching again;
  CHECK_FALSE(fetch_if_empty(again.io, "true", run));
  CHECK_THAT(again.said, ContainsSubstring("found no checkpoint"));
  CHECK_FALSE(fs::exists(run + "/fetching"));
  CHECK_FALSE(fetch_if_empty(again.io, "", run));
}

TEST_CASE("a part of what was uploaded does not pass for all, and a whole checkpoint is not fetched again") {
  const Workplace place;
  succeed(place.train({}));
  const std::string run = place.scratch / "runs/tiny", store = place.scratch / "store";
  fs::rename(run, store);
  const std::string older = store + "/checkpoints/step-00000015", newer = store + "/checkpoints/step-00000020";
  REQUIRE((fs::exists(older) && fs::exists(newer)));
  // The first try is cut off between two checkpoints.
  const std::string command = "mkdir -p $TRIREME_RUN/checkpoints; cp -r " + older + " $TRIREME_RUN/checkpoints; test -e " +
                              place.scratch / "tried" + " || { touch " + place.scratch / "tried" + "; exit 1; }; cp -r " + newer +
                              " $TRIREME_RUN/checkpoints";
  Fetching fetching;
  CHECK_FALSE(fetch_if_empty(fetching.io, command, run));
  CHECK_THAT(fetching.said, ContainsSubstring("--fetch ended with 1; try 2 of 5") && ContainsSubstring("fetched step 20"));
  CHECK(list_checkpoints(run).size() == 2);
  CHECK_FALSE(fetch_if_empty(fetching.io, "exit 9", run));

  // A supervisor that died while it fetched has left its mark.
  write_text(run + "/fetching", "");
  fs::remove_all(run + "/checkpoints/step-00000020");
  CHECK_FALSE(fetch_if_empty(fetching.io, command, run));
  CHECK(list_checkpoints(run).size() == 2);
}

TEST_CASE("checkpoints that arrive incomplete are refused, not taken for an empty store") {
  const Workplace place;
  succeed(place.train({}));
  const std::string run = place.scratch / "runs/tiny", store = place.scratch / "store";
  fs::rename(run, store);
  Fetching fetching;
  const std::string command = "cp -r " + store + "/checkpoints $TRIREME_RUN; truncate -s 5000 $TRIREME_RUN/checkpoints/*/shard*";
  CHECK(fetch_if_empty(fetching.io, command, run) == ExitCode::checkpoint);
  CHECK_THAT(fetching.said, ContainsSubstring("brought no checkpoint that can be used") && ContainsSubstring("step-00000020"));
}

TEST_CASE("a request to stop ends a fetch") {
  const Scratch scratch;
  Fetching fetching;
  fetching.io.stop_signal = [&] { return fs::exists(scratch / "begun") ? SIGTERM : 0; };
  CHECK(fetch_if_empty(fetching.io, "touch " + scratch / "begun" + "; sleep 1000 & wait", scratch / "run") == ExitCode::stopped);
}

}  // namespace trireme
