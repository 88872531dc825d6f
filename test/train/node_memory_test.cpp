// Checkpoints in the memory of several nodes: what a run goes on from when nodes are lost. Nodes of two ranks are pretended on this
// machine, each with a directory of its own; a node that is lost is one whose directory is gone.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> nodes_of_two(const std::string& name, int64_t every = 0) {
  return {"train.steps=120",
          "train.batch=12",
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
  return "/dev/shm/trireme-" + std::to_string(getuid()) + "/" + token + "-" + std::to_string(node);
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  if (fs::is_directory(directory))
    for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// The newest step that a node has.
std::string newest(const std::string& memory) {
  std::string step;
  for (const std::string& name : names_in(memory))
    if (name.starts_with("step-") && name.find('.') == std::string::npos) step = std::max(step, name);
  return step;
}

// Trains until there are so many lines of metrics, then kills all processes.
void train_and_kill(const Workplace& place, const std::vector<std::string>& settings, const std::string& name, int ranks,
                    int64_t lines) {
  Process first(place.scratch.path(), Workplace::arguments(settings), ranks);
  while (first.running() && place.lines(name) < lines) usleep(500);
  REQUIRE(first.running());
  const std::map<int, pid_t> processes = launched_ranks(place.scratch.path());
  REQUIRE(processes.size() == static_cast<size_t>(ranks));
  for (const auto& [rank, pid] : processes) kill(pid, SIGKILL);
  first.signal(SIGKILL);
  first.wait();
}

// Changes one bit of the first tensor that lies in this file of a checkpoint.
void damage(const std::string& checkpoint, const std::string& name) {
  std::ifstream in(checkpoint + "/manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(in).at("manifest");
  for (const auto& tensor : manifest.at("tensors"))
    for (const auto& piece : tensor.at("pieces")) {
      if (manifest.at("files").at(piece.at("file").get<size_t>()).at("name") != name) continue;
      std::fstream file(checkpoint + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
      const std::streamoff at = piece.at("at");
      const auto was = static_cast<char>(file.seekg(at).peek());
      file.seekp(at).put(static_cast<char>(was ^ 1));
      REQUIRE(file.good());
      return;
    }
  FAIL("no tensor lies in " << name);
}

bool no_shared_memory() {
  if (fs::is_directory("/dev/shm")) return false;
  WARN("skipped: no /dev/shm");
  return true;
}

}  // namespace

TEST_CASE("a run of several nodes goes on from their memory when any one is lost, to the same bits") {
  if (no_shared_memory()) return;
  const Workplace place;
  for (const auto& [nodes, losses] : {std::pair(2, std::vector{0, 1}), std::pair(3, std::vector{1})}) {
    const int ranks = 2 * nodes;
    const std::string whole = "whole" + std::to_string(nodes);
    succeed(place.train(nodes_of_two(whole), ranks));
    for (const int lost : losses) {
      const std::string name = "lost" + std::to_string(nodes) + "-" + std::to_string(lost);
      INFO(name);
      train_and_kill(place, nodes_of_two(name), name, ranks, 40);
      for (int node = 0; node < nodes; ++node) {
        const std::string memory = memory_of(place, name, node), step = memory + "/" + newest(memory);
        CHECK(names_in(step).size() == 5);  // two files of its own, two of the node before, and the manifest
        CHECK(names_in(step).contains("shard-0000" + std::to_string(2 * node) + ".h5"));
        CHECK(names_in(step).contains("shard-0000" + std::to_string((2 * node + ranks - 1) % ranks) + ".h5"));
      }
      fs::remove_all(memory_of(place, name, lost));
      const Ended second = place.train(nodes_of_two(name), ranks);
      succeed(second);
      CHECK_THAT(second.out, ContainsSubstring("resumed after step "));
      CHECK(place.metrics(name) == place.metrics(whole));
      CHECK(place.differ(whole, name) == 0);
      for (int node = 0; node < nodes; ++node) CHECK_FALSE(fs::exists(memory_of(place, name, node)));  // the last step is on disk
    }
  }
}

TEST_CASE("what too few nodes remember, or remember wrongly, is passed over for an older checkpoint") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 6));
  {
    train_and_kill(place, nodes_of_two("two", 20), "two", 6, 60);
    for (const int node : {1, 2}) fs::remove_all(memory_of(place, "two", node));
    const bool newer = newest(memory_of(place, "two", 0)) > newest(place.scratch / "runs/two/checkpoints");
    const std::string on_disk = std::to_string(std::stoi(newest(place.scratch / "runs/two/checkpoints").substr(5)));
    const Ended second = place.train(nodes_of_two("two", 20), 6);
    succeed(second);
    if (newer) CHECK_THAT(second.err, ContainsSubstring("2 of its 6 files are in no node's memory any more"));
    CHECK_THAT(second.out, ContainsSubstring("resumed after step " + on_disk));
    CHECK(place.metrics("two") == place.metrics("whole"));
    CHECK(place.differ("two", "whole") == 0);
  }
  {
    train_and_kill(place, nodes_of_two("damaged"), "damaged", 6, 50);
    const std::string step = newest(memory_of(place, "damaged", 2));
    fs::remove_all(memory_of(place, "damaged", 1));
    // Node 2 has the only copy of what node 1's ranks have saved.
    damage(memory_of(place, "damaged", 2) + "/" + step, "shard-00003.h5");
    const Ended second = place.train(nodes_of_two("damaged"), 6);
    succeed(second);
    CHECK_THAT(second.err, ContainsSubstring(step) && ContainsSubstring("passed over"));
    CHECK(place.metrics("damaged") == place.metrics("whole"));
    CHECK(place.differ("damaged", "whole") == 0);
  }
}

TEST_CASE("the nodes that are left go on from memory without the others") {
  if (no_shared_memory()) return;
  const Workplace place;
  train_and_kill(place, nodes_of_two("fewer"), "fewer", 6, 50);
  const std::string saved = newest(memory_of(place, "fewer", 0));
  fs::remove_all(memory_of(place, "fewer", 2));
  const Ended second = place.train(nodes_of_two("fewer"), 4);
  succeed(second);
  CHECK_THAT(second.out, ContainsSubstring("resumed after step " + std::to_string(std::stoi(saved.substr(5)))));
  CHECK(place.metrics("fewer").back().at("step") == 120);
}

TEST_CASE("a node that cannot save to its memory costs the save, on all nodes, and not the run") {
  if (no_shared_memory()) return;
  const Workplace place;
  succeed(place.train(nodes_of_two("whole"), 4));
  Process run(place.scratch.path(), Workplace::arguments(nodes_of_two("refused")), 4);
  while (run.running() && place.lines("refused") < 30) usleep(500);
  REQUIRE(run.running());
  fs::remove_all(memory_of(place, "refused", 1));
  const Ended ended = run.wait();
  succeed(ended);
  CHECK_THAT(ended.out + ended.err, ContainsSubstring("warning: no checkpoint of step"));
  CHECK(place.differ("refused", "whole") == 0);
}

}  // namespace trireme
