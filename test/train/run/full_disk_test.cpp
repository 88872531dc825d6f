// A full or read-only disk: before the start, during it, and at the last save. What a failed start leaves.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/replace_file.h"
#include "checkpoint/run_lock.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/fresh_run.h"

namespace trireme {
namespace {

// Makes the call of rank 0 number `at` whose path has `below` in it fail for want of space, while it lives.
class FullDisk {
 public:
  explicit FullDisk(int64_t at, const char* below = "/checkpoints/") {
    setenv("FAULTY_BELOW", below, 1);
    setenv("LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_disk.so", 1);
    setenv("FAULTY_AT", std::to_string(at).c_str(), 1);
    setenv("FAULTY_KIND", "enospc", 1);
  }
  ~FullDisk() {
    for (const char* name : {"LD_PRELOAD", "FAULTY_AT", "FAULTY_KIND", "FAULTY_BELOW"}) unsetenv(name);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
};

}  // namespace

TEST_CASE("an error of a file that cannot be written has the reason and the remedy") {
  const auto words = [](int reason) { return std::string(unwritable("runs/x/file", reason).what()); };
  CHECK(words(ENOSPC) == "runs/x/file: No space left on device; free space or choose another directory");
  CHECK(words(EDQUOT) == "runs/x/file: Disk quota exceeded; free space or choose another directory");
  CHECK(words(EACCES) == "runs/x/file: Permission denied; make it writable or choose another directory");
  CHECK(words(EROFS) == "runs/x/file: Read-only file system; choose another directory");
  CHECK(unwritable("x", EIO).code() == ExitCode::data);
}

TEST_CASE("a disk that is full before the start ends it with 3, the reason and the remedy", "[unsanitized]") {
  const Workplace place;
  for (const std::string file : {"data.jsonl", "config.yaml"}) {
    const FullDisk full(2, file == "data.jsonl" ? "/data.jsonl" : "full/config.yaml");  // after the removal of an older one
    const Ended ended = place.train({"train.name=full"});
    CHECK(ended.code == 3);
    CHECK(ended.err == "runs/full/" + file + ": No space left on device; free space or choose another directory\n");
  }
  std::filesystem::create_directories(place.scratch / "runs/log/log.txt");
  const Ended log = place.train({"train.name=log"});
  CHECK(log.code == 3);
  CHECK(log.err == "runs/log/log.txt: Is a directory; choose another directory\n");
  const Ended ended = place.train({"train.runs=/dev/null/runs"});
  CHECK(ended.code == 3);
  CHECK(ended.err == "/dev/null/runs/tiny: Not a directory; choose another directory\n");
}

TEST_CASE("a last save on a full disk ends with 4, the steps that are lost and the remedy", "[unsanitized]") {
  const Workplace place;
  const auto train = [&](const std::string& steps) {
    return place.train({"train.steps=" + steps, "checkpoint.every=0", "train.schedule=constant", "train.eval_every=0"});
  };
  for (const auto& [steps, lost] : {std::pair("6", "; all steps are lost: "), std::pair("8", "; steps after step 6 are lost: ")}) {
    Ended ended;
    {
      const FullDisk full(1, ".tmp/shard-");
      ended = train(steps);
    }
    CHECK(ended.code == 4);
    const std::string remedy =
        std::string(lost) + "free space and give the same command, which repeats them" +
        (steps == std::string("6") ? "\n" : ". All but the newest checkpoint in runs/tiny/checkpoints can be removed\n");
    INFO(ended.err);
    CHECK(ended.err.ends_with(".tmp/shard-00000.h5.tmp: cannot be created: No space left on device" + remedy));
    succeed(train(steps));
  }
}

TEST_CASE("a start that fails leaves no run directory, on one rank and on two") {
  const Workplace place;
  write_text(place.scratch / "broken-00000.h5", "these are no tokens");
  for (const int ranks : {1, 2}) {
    const Ended ended = place.train({"data.train=[broken-00000.h5]"}, ranks);
    CHECK(ended.code == 3);
    CHECK_FALSE(std::filesystem::exists(place.scratch / "runs/tiny"));
  }
  succeed(place.train({"train.steps=6"}));
  CHECK(place.train({"train.steps=7", "data.train=[broken-00000.h5]", "train.seed=1"}).code == 3);
  CHECK(std::filesystem::exists(place.scratch / "runs/tiny/checkpoints/step-00000006"));
}

TEST_CASE("a fresh run directory is removed unless it holds a step, a foreign file or another process's lock") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  const auto fill = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(run + "/checkpoints");
    write_text(run + "/lock", "");
    write_text(run + "/data.jsonl.tmp", "x");
    if (!file.empty()) write_text(run + "/" + file, text);
  };
  const FreshRun fresh(run);
  CHECK_FALSE(fresh.remove(false));  // it was not made
  for (const auto& [file, text] : {std::pair("metrics.jsonl", "{}\n"), std::pair("notes.md", ""), std::pair("checkpoints/x", "")}) {
    fill(file, text);
    CHECK_FALSE(fresh.remove(false));
    CHECK(std::filesystem::exists(run + "/" + file));
    std::filesystem::remove(run + "/" + file);
  }
  {
    const RunLock other(run);
    CHECK_FALSE(fresh.remove(false));
  }
  fill("metrics.jsonl", "");
  CHECK_FALSE(FreshRun(run).remove(false));  // it was there before
  CHECK(fresh.remove(false));
  CHECK_FALSE(std::filesystem::exists(run));
  fill("", "");
  {
    const RunLock own(run);
    CHECK(fresh.remove(true));
  }
  CHECK_FALSE(std::filesystem::exists(run));
}

}  // namespace trireme
