// Files of a run and what they know of one another: missing checkpoints are not taken for none, and changed records and shards are
// noticed.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/lineage.h"
#include "test/catch.h"
#include "test/train/workplace.h"

using namespace trireme;
namespace fs = std::filesystem;

namespace {

constexpr auto kMore = "train.steps=22";

// A run of 20 steps, copied for each trial.
struct SavedRun {
  Workplace place;
  std::string path = place.scratch / "runs/tiny", saved = place.scratch / "saved";

  SavedRun() {
    succeed(place.train({}));
    fs::copy(path, saved, fs::copy_options::recursive);
  }
  void again() const {
    fs::remove_all(path);
    fs::copy(saved, path, fs::copy_options::recursive);
  }
  Ended resume(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = Workplace::arguments({kMore});
    words.insert(words.end(), more.begin(), more.end());
    return run_trireme(place.scratch.path(), words);
  }
  Ended verify() const { return run_trireme(place.scratch.path(), {"checkpoint", "verify", "runs/tiny"}); }
  std::string text_of(const std::string& file) const { return read_text(path + "/" + file); }
};

const SavedRun& saved_run() {
  static const SavedRun run;
  return run;
}

void change_byte(const std::string& path, size_t at) {
  std::string bytes = read_text(path);
  bytes.at(at) = static_cast<char>(bytes[at] ^ 1);
  write_text(path, bytes);
}

}  // namespace

TEST_CASE("a run whose checkpoints are missing is not started from step 0, and is on purpose with its records kept") {
  const SavedRun& run = saved_run();
  const std::string gone = GENERATE("all", "directory", "all of an older program", "all but exit.json");
  INFO(gone);
  run.again();
  fs::remove_all(run.path + "/checkpoints");
  if (gone != "directory") fs::create_directory(run.path + "/checkpoints");
  if (gone != "all" && gone != "directory") {
    fs::remove(run.path + "/lineage.jsonl");
    fs::remove(run.path + "/run.id");
  }
  if (gone == "all but exit.json") fs::remove(run.path + "/metrics.jsonl");
  for (int start = 0; start < 2; ++start) {  // the second finds no exit.json of the run
    const Ended refused = run.resume();
    CHECK(refused.code == 4);
    CHECK_THAT(refused.err, ContainsSubstring("checkpoints holds no checkpoint, but step 20 was") &&
                                ContainsSubstring("mount or restore the directory") && ContainsSubstring("--resume never"));
  }
  if (gone != "all but exit.json") CHECK(run.text_of("metrics.jsonl") == read_text(run.saved + "/metrics.jsonl"));
  CHECK(run.text_of("data.jsonl") == read_text(run.saved + "/data.jsonl"));
  const Ended anew = run.resume({"--resume", "never"});
  INFO(anew.err);
  REQUIRE(anew.code == 0);
  CHECK(run.place.lines("tiny") == 22 + 3);
  if (gone != "all but exit.json") CHECK(run.text_of("metrics.1.jsonl") == read_text(run.saved + "/metrics.jsonl"));
  CHECK(run.text_of("data.1.jsonl") == read_text(run.saved + "/data.jsonl"));
  CHECK(run.text_of("run.id") != read_text(run.saved + "/run.id"));
  // Checkpoints of the earlier life that come back are not taken for the new one's.
  fs::copy(run.saved + "/checkpoints/step-00000015", run.path + "/checkpoints/step-00000099", fs::copy_options::recursive);
  fs::rename(run.path + "/checkpoints/step-00000099", run.path + "/checkpoints/step-00000015");
  CHECK(run.resume().code == 0);
}

TEST_CASE("two ranks refuse a run whose checkpoints are missing together") {
  const SavedRun& run = saved_run();
  run.again();
  fs::remove_all(run.path + "/checkpoints");
  const Ended refused = run.place.train({"train.steps=22", "parallel.dp=2"}, 2);
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("holds no checkpoint, but step 20 was committed"));
}

TEST_CASE("a run that never committed a checkpoint starts from step 0 without a word") {
  const SavedRun& run = saved_run();
  run.again();
  fs::remove_all(run.path + "/checkpoints");
  for (const char* file : {"lineage.jsonl", "exit.json"}) fs::remove(run.path + "/" + file);
  std::string steps;
  std::istringstream in(read_text(run.saved + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (!comes_when_measured(line)) steps += line + "\n";
  write_text(run.path + "/metrics.jsonl", steps);
  const Ended anew = run.resume();
  CHECK(anew.code == 0);
  CHECK(anew.err.empty());
}

TEST_CASE("a checkpoint of another run is named and not resumed") {
  const SavedRun& run = saved_run();
  succeed(run.place.train({"train.name=other", "train.seed=5"}));
  run.again();
  fs::copy(run.place.scratch / "runs/other/checkpoints/step-00000020", run.path + "/checkpoints/step-00000030",
           fs::copy_options::recursive);
  fs::remove_all(run.path + "/checkpoints/step-00000020");
  fs::remove_all(run.path + "/checkpoints/step-00000030");
  fs::copy(run.place.scratch / "runs/other/checkpoints/step-00000020", run.path + "/checkpoints/step-00000020",
           fs::copy_options::recursive);
  const Ended ended = run.place.train({"train.steps=16"});
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("step-00000020 belongs to run ") && ContainsSubstring("it is ignored"));
  CHECK_THAT(ended.out, ContainsSubstring("resumed after step 15"));
  CHECK(fs::exists(run.path + "/checkpoints/step-00000020"));
  fs::remove_all(run.place.scratch / "runs/other");
}

TEST_CASE("changed metrics are set aside with a warning, and verify names them") {
  const SavedRun& run = saved_run();
  const std::string change = GENERATE("deleted", "emptied", "a digit", "a line less", "none");
  INFO(change);
  run.again();
  const std::string metrics = run.path + "/metrics.jsonl", before = read_text(metrics);
  if (change == "deleted") fs::remove(metrics);
  if (change == "emptied") write_text(metrics, "");
  if (change == "a digit") change_byte(metrics, before.find("\"loss\": ") + 8);
  if (change == "a line less") write_text(metrics, before.substr(before.find('\n') + 1));
  const std::string changed = change == "deleted" ? "" : read_text(metrics);
  const Ended verified = run.verify();
  CHECK(verified.code == (change == "none" ? 0 : 4));
  if (change != "none") CHECK_THAT(verified.err, ContainsSubstring("metrics.jsonl"));
  const Ended ended = run.resume();
  CHECK(ended.code == 0);
  if (change == "none") {
    CHECK(run.place.lines("tiny") == 22 + 3);
    CHECK(!fs::exists(run.path + "/metrics.1.jsonl"));
    return;
  }
  CHECK_THAT(ended.out, ContainsSubstring("metrics.jsonl") && ContainsSubstring("the record begins anew after step 20"));
  CHECK(run.place.lines("tiny") == 2 + 2);  // the evaluation after step 20 is made again
  if (change != "deleted") CHECK(run.text_of("metrics.1.jsonl") == changed);
}

TEST_CASE("a changed data record is refused, and so are exchanged shards without it") {
  const SavedRun& run = saved_run();
  const std::string change = GENERATE("deleted", "a digit", "deleted and shards exchanged");
  INFO(change);
  run.again();
  const std::string record = run.path + "/data.jsonl", shard = run.place.scratch / "shards/train-00000.h5";
  if (change == "a digit")
    change_byte(record, read_text(record).find("\"digest\":\"") + 11);
  else
    fs::remove(record);
  if (change == "deleted and shards exchanged") {
    fs::rename(shard, run.place.scratch / "kept.h5");
    fs::copy(run.place.scratch / "shards/validation-00000.h5", shard);
  }
  CHECK(run.verify().code == 4);
  const Ended refused = run.resume();
  CHECK(refused.code == 3);
  CHECK_THAT(refused.err, ContainsSubstring("data.jsonl") && ContainsSubstring("--resume-allow"));
  if (change == "deleted and shards exchanged") {
    fs::remove(shard);
    fs::rename(run.place.scratch / "kept.h5", shard);
  }
  const Ended allowed = run.resume({"--resume-allow"});
  CHECK(allowed.code == 0);
  CHECK_THAT(allowed.out, ContainsSubstring("data.jsonl"));
}

TEST_CASE("validation shards that were exchanged are named, and the run continues") {
  const SavedRun& run = saved_run();
  run.again();
  const std::string shard = run.place.scratch / "shards/validation-00000.h5", kept = run.place.scratch / "kept.h5";
  CHECK_THAT(run.resume().out, !ContainsSubstring("data.validation"));
  run.again();
  fs::rename(shard, kept);
  fs::copy(run.place.scratch / "shards/train-00000.h5", shard);
  const Ended exchanged = run.resume();
  fs::rename(kept, shard);
  CHECK(exchanged.code == 0);
  CHECK_THAT(exchanged.out, ContainsSubstring("data.validation: its shards are not those before step"));
}

TEST_CASE("a link in the place of a log is refused, and its target stays as it is") {
  const SavedRun& run = saved_run();
  const std::string name = GENERATE("log.txt", "metrics.jsonl", "data.jsonl", "lineage.jsonl", "lock");
  INFO(name);
  run.again();
  const std::string target = run.place.scratch / "target";
  fs::copy_file(run.path + "/" + name, target, fs::copy_options::overwrite_existing);
  const std::string before = read_text(target);
  fs::remove(run.path + "/" + name);
  fs::create_symlink(target, run.path + "/" + name);
  const Ended ended = run.resume();
  CHECK(ended.code != 0);
  CHECK_THAT(ended.err, ContainsSubstring(name));
  CHECK(read_text(target) == before);
}

TEST_CASE("links in the place of replaced files are replaced, and their targets stay as they are") {
  const SavedRun& run = saved_run();
  run.again();
  write_text(run.place.scratch / "target", "kept");
  for (const char* name : {"exit.json", "exit.json.tmp", "config.yaml", "report.html", "report.html.tmp", "metrics.jsonl.tmp"}) {
    fs::remove(run.path + "/" + name);
    fs::create_symlink(run.place.scratch / "target", run.path + "/" + name);
  }
  CHECK(run.resume().code == 0);
  CHECK(read_text(run.place.scratch / "target") == "kept");
}

TEST_CASE("bytes of a shard that change during a run are noticed, and end it with 3") {
  const Workplace place;
  const std::string shard = place.scratch / "shards/train-00000.h5";
  Process training(place.scratch.path(), Workplace::arguments({"train.steps=1000000", "train.eval_every=0", "data.scrub=20"}));
  while (training.running() && place.lines("tiny") < 20) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int file = open(shard.c_str(), O_WRONLY);
  std::string other;  // other tokens of the vocabulary
  while (other.size() < 4000) other += std::string("z\0", 2);
  REQUIRE(pwrite(file, other.data(), other.size(), 100000) == 4000);
  close(file);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (training.running() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (training.running()) training.signal(9);
  const Ended ended = training.wait();
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring("train-00000.h5") && ContainsSubstring("are damaged: their digest does not match"));
}

TEST_CASE("checkpoints in memory that are not used are named") {
  const std::string what = GENERATE("token", "mode");
  const Workplace place;
  Process training(place.scratch.path(), Workplace::arguments({"train.steps=1000000", "train.eval_every=0", "checkpoint.every=0",
                                                               "checkpoint.memory_every=1"}));
  while (training.running() && place.run("tiny", "metrics.jsonl").find("\"memory\"") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  training.signal(SIGKILL);
  (void)training.wait();
  const std::string token = place.run("tiny", "memory").substr(0, 16);
  const std::string directory = "/dev/shm/trireme-" + std::to_string(geteuid()) + "/" + token;
  REQUIRE(fs::exists(directory));
  if (what == "token")
    write_text(place.scratch / "runs/tiny/memory", "0123456789abcdef\n");
  else
    fs::permissions(directory, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec);
  const Ended ended = place.train({"train.steps=2"});
  fs::remove_all(directory);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("checkpoints in memory"));
}

TEST_CASE("a checkpoint that is damaged during a run is reported, and an older one is kept in its place") {
  const Workplace place;
  succeed(place.train({"train.steps=15", "checkpoint.keep=3"}));
  const std::string path = place.scratch / "runs/tiny/checkpoints";
  Process training(place.scratch.path(), Workplace::arguments({"train.steps=100000000", "train.eval_every=0", "checkpoint.keep=3",
                                                               "checkpoint.every=0", "checkpoint.scrub=20"}));
  while (training.running() && place.lines("tiny") < 40) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  change_byte(path + "/step-00000010/shard-00000.h5", 9000);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (training.running() && std::chrono::steady_clock::now() < until &&
         place.run("tiny", "log.txt").find("step 10 has been damaged") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  training.signal(SIGTERM);
  const Ended ended = training.wait();
  CHECK(ended.code == 75);
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("the checkpoint of step 10 has been damaged since it was saved"));
  CHECK(fs::exists(path + "/step-00000005"));
}

TEST_CASE("a run looks first for checkpoints that miss a file or have another manifest, however slowly it reads them") {
  const Workplace place;
  succeed(place.train({"train.steps=15", "checkpoint.keep=3"}));
  const std::string path = place.scratch / "runs/tiny/checkpoints";
  Manifest other = load_manifest(Io(), path + "/step-00000005");
  ++other.counters["tokens"];
  write_text(path + "/step-00000005/manifest.json", write_manifest(other));
  fs::remove(path + "/step-00000010/shard-00000.h5");
  Process training(place.scratch.path(),
                   Workplace::arguments({"train.steps=100000000", "train.eval_every=0", "checkpoint.every=0"}));
  const auto found = [&](const char* line) { return place.run("tiny", "log.txt").find(line) != std::string::npos; };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (training.running() && std::chrono::steady_clock::now() < until &&
         !(found("step 5 has been damaged") && found("step 10 has been damaged")))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  training.signal(SIGTERM);
  (void)training.wait();
  const std::string log = place.run("tiny", "log.txt");
  CHECK_THAT(log, ContainsSubstring("step-00000005/manifest.json is not the one that was committed"));
  CHECK_THAT(log, ContainsSubstring("step-00000010/shard-00000.h5"));
}

TEST_CASE("damage that another node finds in its part of a checkpoint is reported with the next save") {
  const Workplace place;
  succeed(place.train({"train.steps=15", "checkpoint.keep=3"}, 2));
  const std::string path = place.scratch / "runs/tiny/checkpoints";
  change_byte(path + "/step-00000010/shard-00001.h5", 9000);
  Process training(place.scratch.path(),
                   Workplace::arguments({"train.steps=100000000", "train.eval_every=0", "checkpoint.keep=3", "checkpoint.every=300",
                                         "checkpoint.scrub=20", "parallel.node_ranks=1"}),
                   2);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (training.running() && std::chrono::steady_clock::now() < until &&
         place.run("tiny", "log.txt").find("step 10 has been damaged") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  training.signal(SIGTERM);
  (void)training.wait();
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("the checkpoint of step 10 has been damaged since it was saved"));
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("step-00000010/shard-00001.h5"));
}
