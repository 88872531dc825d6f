// Checkpoints in the memory of several nodes, from which a run continues when nodes are lost. Nodes
// of two ranks are simulated on this machine, each with a directory of its own; a lost node is one
// whose directory is gone.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "checkpoint/rank_files.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/workplace.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> nodes_of_two(const std::string& name, int64_t every = 0) {
  return {kSanitized ? "train.steps=60" : "train.steps=120",
          kSanitized ? "train.batch=4" : "train.batch=12",
          "train.microbatch=1",
          "train.eval_every=0",
          "parallel.two_level=true",
          "train.name=" + name,
          "parallel.node_ranks=2",
          "checkpoint.memory_every=3",
          "checkpoint.every=" + std::to_string(every)};
}

std::string memory_of(const Workplace& place, const std::string& name, int node) {
  std::string token;
  std::ifstream(place.scratch / ("runs/" + name + "/memory")) >> token;
  return "/dev/shm/trireme-" + std::to_string(getuid()) + "/" + token + (node > 0 ? "-" + std::to_string(node) : "");
}

// As if the node had been started anew; what is being written there is written nowhere.
void lose(const std::string& memory) {
  const std::string aside = memory + "-lost";
  fs::rename(memory, aside);
  fs::remove_all(aside);
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  if (fs::is_directory(directory))
    for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// The steps that a node has, the newest last.
std::vector<std::string> steps_of_node(const std::string& memory) {
  std::vector<std::string> steps;
  for (const std::string& name : names_in(memory))
    if (name.starts_with("step-") && name.find('.') == std::string::npos) steps.push_back(name);
  return steps;
}

std::string newest(const std::string& memory) {
  const std::vector<std::string> steps = steps_of_node(memory);
  return steps.empty() ? "" : steps.back();
}

std::string number_of(const std::string& step) { return std::to_string(std::stoll(step.substr(5))); }

// The newest step that each of so many nodes has: a kill may come between their commits.
std::string newest_of_all(const Workplace& place, const std::string& name, int nodes) {
  std::string step = newest(memory_of(place, name, 0));
  for (int node = 1; node < nodes; ++node) step = std::min(step, newest(memory_of(place, name, node)));
  return step;
}

// Trains until `when` holds, then kills all processes.
template <class When>
void train_and_kill(const Workplace& place, const std::vector<std::string>& settings, int ranks, When when) {
  Process first(place.scratch.path(), Workplace::arguments(settings), ranks);
  while (first.running() && !when()) usleep(500);
  REQUIRE(first.running());
  const std::map<int, pid_t> processes = launched_ranks(place.scratch.path());
  REQUIRE(processes.size() == static_cast<size_t>(ranks));
  for (const auto& [rank, pid] : processes) kill(pid, SIGKILL);
  first.signal(SIGKILL);
  first.wait();
  for (int wait = 0; wait < 3000 && any_alive(processes); ++wait) usleep(10000);  // a killed rank may still hold the run's lock
  REQUIRE_FALSE(any_alive(processes));
}

// Each of so many nodes has a step that is not on disk, and the disk's next one, of every 20, is some way off.
auto ahead_of_disk(const Workplace& place, const std::string& name, int nodes) {
  return [&place, name, nodes] {
    const std::string on_disk = newest(place.scratch / ("runs/" + name + "/checkpoints"));
    if (on_disk.empty()) return false;
    const std::string step = newest_of_all(place, name, nodes);
    return step > on_disk && std::stoll(number_of(step)) % 20 < 12;
  };
}

// The run has so many lines, and each of so many nodes `least` steps: on a busy machine a save may outlast 40 steps.
auto each_remembers(const Workplace& place, const std::string& name, int nodes, int64_t lines, size_t least = 1) {
  return [&place, name, nodes, lines, least] {
    if (place.lines(name) < lines) return false;
    for (int node = 0; node < nodes; ++node)
      if (steps_of_node(memory_of(place, name, node)).size() < least) return false;
    return true;
  };
}

// Trains on so many nodes of two ranks and kills all when each node has `least` steps. Returns the newest step in memory, the same
// on each node: where the kill came between their commits, so that one has a newer step whole, all is done again.
std::string kill_with_one_step(const Workplace& place, const std::string& name, int nodes, size_t least = 1) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    train_and_kill(place, nodes_of_two(name), 2 * nodes, each_remembers(place, name, nodes, kSanitized ? 20 : 50, least));
    const std::string step = newest_of_all(place, name, nodes);
    bool alike = true;
    for (int node = 0; node < nodes; ++node) alike = alike && newest(memory_of(place, name, node)) == step;
    if (alike) return step;
    for (int node = 0; node < nodes; ++node) lose(memory_of(place, name, node));
    fs::remove_all(place.scratch / ("runs/" + name));
  }
  FAIL("each of ten kills came between the nodes' commits");
  return "";
}

// Changes one bit of the first tensor that lies in this file of a checkpoint.
void damage(const std::string& checkpoint, const std::string& name) {
  const Io io;
  RankFiles files(io, checkpoint, load_manifest(io, checkpoint));
  const auto index = std::ranges::find(files.manifest().files, name, &FileEntry::name) - files.manifest().files.begin();
  const std::streamoff at = files.known(index).pieces.at(0).at;
  std::fstream file(checkpoint + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
  const auto was = static_cast<char>(file.seekg(at).peek());
  file.seekp(at).put(static_cast<char>(was ^ 1));
  REQUIRE(file.good());
}

bool no_shared_memory() {
  if (fs::is_directory("/dev/shm")) return false;
  WARN("skipped: no /dev/shm");
  return true;
}

}  // namespace

TEST_CASE("a run of several nodes continues from their memory when any one is lost, to the same bits", "[unsanitized]") {
  if (no_shared_memory()) return;
  const Workplace place;
  for (const auto& [nodes, losses] : {std::pair(2, std::vector{0, 1}), std::pair(3, std::vector{1})}) {
    const int ranks = 2 * nodes;
    const std::string whole = "whole" + std::to_string(nodes);
    succeed(place.train(nodes_of_two(whole), ranks));
    for (const int lost : losses) {
      const std::string name = "lost" + std::to_string(nodes) + "-" + std::to_string(lost);
      INFO(name);
      train_and_kill(place, nodes_of_two(name), ranks, each_remembers(place, name, nodes, 40));
      for (int node = 0; node < nodes; ++node) {
        const std::string memory = memory_of(place, name, node), step = memory + "/" + newest(memory);
        CHECK(names_in(step).size() == 5);  // two files of its own, two of the node before, and the manifest
        CHECK(names_in(step).contains("shard-0000" + std::to_string(2 * node) + ".h5"));
        CHECK(names_in(step).contains("shard-0000" + std::to_string((2 * node + ranks - 1) % ranks) + ".h5"));
      }
      lose(memory_of(place, name, lost));
      const Ended second = place.train(nodes_of_two(name), ranks);
      succeed(second);
      CHECK_THAT(second.out, ContainsSubstring("resumed after step "));
      CHECK(place.metrics(name) == place.metrics(whole));
      CHECK(place.differ(whole, name) == 0);
      for (int node = 0; node < nodes; ++node) CHECK_FALSE(fs::exists(memory_of(place, name, node)));  // the last step is on disk
    }
  }
}

TEST_CASE("a step that too few nodes remember, or remember wrongly, is skipped for an older checkpoint", "[unsanitized]") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 6));
  {
    train_and_kill(place, nodes_of_two("two", 20), 6, ahead_of_disk(place, "two", 3));
    for (const int node : {1, 2}) lose(memory_of(place, "two", node));
    REQUIRE(newest(memory_of(place, "two", 0)) > newest(place.scratch / "runs/two/checkpoints"));
    const std::string on_disk = number_of(newest(place.scratch / "runs/two/checkpoints"));
    const Ended second = place.train(nodes_of_two("two", 20), 6);
    succeed(second);
    CHECK_THAT(second.err, ContainsSubstring("2 of its 6 files are in no node's memory any more"));
    CHECK_THAT(second.out, ContainsSubstring("resumed after step " + on_disk));
    CHECK(place.metrics("two") == place.metrics("whole"));
    CHECK(place.differ("two", "whole") == 0);
  }
  {
    const std::string step = kill_with_one_step(place, "damaged", 3, 2);  // and one to fall back to
    lose(memory_of(place, "damaged", 1));
    // Node 2 has the only copy of what node 1's ranks have saved.
    damage(memory_of(place, "damaged", 2) + "/" + step, "shard-00003.h5");
    const Ended second = place.train(nodes_of_two("damaged"), 6);
    succeed(second);
    CHECK_THAT(second.err, ContainsSubstring(step) && ContainsSubstring("skipping it"));
    CHECK(place.metrics("damaged") == place.metrics("whole"));
    CHECK(place.differ("damaged", "whole") == 0);
  }
}

TEST_CASE("a run whose nodes are lost before its first checkpoint on disk begins anew", "[unsanitized]") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 6));
  train_and_kill(place, nodes_of_two("two"), 6, each_remembers(place, "two", 3, 40));
  for (const int node : {1, 2}) lose(memory_of(place, "two", node));
  const Ended second = place.train(nodes_of_two("two"), 6);
  succeed(second);
  CHECK_THAT(second.err, ContainsSubstring(" is lost: 2 of its 6 files are in no node's memory any more"));
  CHECK_THAT(second.out, !ContainsSubstring("resumed after step "));
  CHECK(place.metrics("two") == place.metrics("whole"));
  CHECK(place.differ("two", "whole") == 0);
}

TEST_CASE("of a file that one node has damaged in its memory the copy on the next is taken") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 4));
  const std::string step = kill_with_one_step(place, "damaged", 2);
  damage(memory_of(place, "damaged", 0) + "/" + step, "shard-00001.h5");
  damage(memory_of(place, "damaged", 1) + "/" + step, "shard-00003.h5");
  const Ended second = place.train(nodes_of_two("damaged"), 4);
  succeed(second);
  CHECK_THAT(second.err, !ContainsSubstring("skipping it"));
  CHECK_THAT(second.out, ContainsSubstring("resumed after step " + number_of(step)));
  CHECK(place.metrics("damaged") == place.metrics("whole"));
  CHECK(place.differ("damaged", "whole") == 0);
}

TEST_CASE("the remaining nodes continue from memory without the others, several or one", "[unsanitized]") {
  if (no_shared_memory()) return;
  const Workplace place;
  for (const auto& [ranks, left] : {std::pair(6, 4), std::pair(4, 2)}) {
    const std::string name = "fewer" + std::to_string(left);
    const std::string step = kill_with_one_step(place, name, ranks / 2);
    lose(memory_of(place, name, left / 2));
    const Ended second = place.train(nodes_of_two(name), left);
    succeed(second);
    CHECK_THAT(second.out, ContainsSubstring("resumed after step " + number_of(step)));
    CHECK(place.metrics(name).back().at("step") == 120);
  }
}

TEST_CASE("nodes that come back with steps that a run has gone on without are not heard", "[unsanitized]") {
  if (no_shared_memory()) return;
  const Workplace place;
  train_and_kill(place, nodes_of_two("back", 20), 6, ahead_of_disk(place, "back", 3));
  const std::vector<std::string> away{memory_of(place, "back", 1), memory_of(place, "back", 2)};
  // A name of no token: what a start of any run here sweeps away are directories of tokens that their runs have given up.
  const auto elsewhere = [](const fs::path& memory) { return memory.parent_path() / ("away-" + memory.filename().string()); };
  for (const std::string& memory : away) fs::rename(memory, elsewhere(memory));
  const int64_t on_disk = std::stoll(number_of(newest(place.scratch / "runs/back/checkpoints")));
  REQUIRE(on_disk < std::stoll(number_of(newest(memory_of(place, "back", 0)))));
  // On from disk, and stopped before it is where it was.
  auto few = nodes_of_two("back", 20);
  few.push_back("train.steps=" + std::to_string(on_disk + 1));
  few.push_back("train.schedule=constant");
  auto all = few;
  all.push_back("train.steps=120");
  const Ended second = place.train(few, 6);
  succeed(second);
  CHECK_THAT(second.err, ContainsSubstring("in no node's memory any more"));
  for (const std::string& memory : away) fs::rename(elsewhere(memory), memory);
  const Ended third = place.train(all, 6);
  succeed(third);
  CHECK_THAT(third.out, ContainsSubstring("resumed after step " + std::to_string(on_disk + 1)));
  for (const std::string& memory : away) CHECK_FALSE(fs::exists(memory));
}

TEST_CASE("a node that cannot save to its memory costs the save, on all nodes, and not the run") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 4));
  Process run(place.scratch.path(), Workplace::arguments(nodes_of_two("refused")), 4);
  while (run.running() && place.lines("refused") < 30) usleep(500);
  REQUIRE(run.running());
  lose(memory_of(place, "refused", 1));
  const Ended ended = run.wait();
  succeed(ended);
  CHECK_THAT(ended.out + ended.err, ContainsSubstring("warning: no checkpoint of step"));
  CHECK(place.differ("refused", "whole") == 0);
}

TEST_CASE("a lock that is lost in the midst of saves to several nodes' memory ends the run, and hangs nobody") {
  if (no_shared_memory()) return;
  const Workplace place;
  auto settings = nodes_of_two("robbed");
  settings.push_back("train.hang_after=60");
  Process run(place.scratch.path(), Workplace::arguments(settings), 4);
  while (run.running() && place.lines("robbed") < 30) usleep(500);
  REQUIRE(run.running());
  fs::remove(place.scratch / "runs/robbed/lock");
  const Ended ended = run.wait();
  CHECK(ended.code == 4);  // the last save must succeed
  CHECK_THAT(ended.out + ended.err, ContainsSubstring("is no longer ours"));
}

}  // namespace trireme
