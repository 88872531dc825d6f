// Training on several ranks: the same model as on one, on any mesh; errors reported once.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// The largest relative difference of the runs' numbers: losses, gradient norms, held-out losses.
double difference(const Workplace& place, const std::string& a, const std::string& b) {
  const auto one = place.metrics(a), two = place.metrics(b);
  REQUIRE(one.size() == two.size());
  double most = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    REQUIRE(one[i].at("step") == two[i].at("step"));
    for (const char* key : {"loss", "grad_norm", "val_loss"}) {
      REQUIRE(one[i].contains(key) == two[i].contains(key));
      if (!one[i].contains(key)) continue;
      const double x = one[i].at(key), y = two[i].at(key);
      most = std::max(most, std::abs(x - y) / std::abs(x));
    }
  }
  return most;
}

// The process of one rank, any, whose command line holds this name; 0: there is none.
pid_t rank_of(const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(in), {}};
    if (line.starts_with(TRIREME_BUILD "/trireme") && line.find(name) != std::string::npos)
      return static_cast<pid_t>(std::stol(entry.path().filename().string()));
  }
  return 0;
}

}  // namespace

TEST_CASE("replicas train the same model as one rank") {
  const Workplace place;
  // Held-out sequences for some of the replicas.
  const std::string held = "train.eval_sequences=3";
  succeed(place.train({"train.name=one", "train.microbatch=1", held}));
  for (const int replicas : {2, 4})
    for (const std::string zero : {"0", "1", "3"}) {
      CAPTURE(replicas, zero);
      const std::string name = "dp" + std::to_string(replicas) + "zero" + zero;
      succeed(place.train({"train.name=" + name, "train.microbatch=1", held, "parallel.zero=" + zero}, replicas));
      CHECK(difference(place, "one", name) < 2e-6);
      const std::string shards = place.scratch / ("runs/" + name + "/checkpoints/step-00000020/shard-0000");
      for (int rank = 0; rank < replicas; ++rank)
        CHECK(std::filesystem::exists(shards + std::to_string(rank) + ".h5") == (rank == 0 || zero != "0"));
    }
  // Without a microbatch, each replica takes its part of the batch at once.
  succeed(place.train({"train.name=whole", "train.microbatch=0", "parallel.dp=2", held}, 2));
  CHECK(difference(place, "one", "whole") < 2e-6);
}

TEST_CASE("gradients travel as bf16, and first within nodes, where that is asked for") {
  const Workplace place;
  const auto train = [&](const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"train.name=" + name, "train.microbatch=1"});
    succeed(place.train(settings, 4));
    return place.metrics(name);
  };
  for (const std::string zero : {"0", "1", "3"}) {
    CAPTURE(zero);
    const auto flat = train("flat" + zero, {"parallel.zero=" + zero});
    CHECK(train("nodes" + zero, {"parallel.zero=" + zero, "parallel.two_level=true", "parallel.node_ranks=2"}) == flat);
    if (zero != "3") CHECK(train("messages" + zero, {"parallel.zero=" + zero, "parallel.shared_memory=false"}) == flat);
    // One machine is one node.
    if (!kSanitized) CHECK(train("node" + zero, {"parallel.zero=" + zero, "parallel.two_level=true"}) == flat);
  }
  train("narrow", {"parallel.reduce=bf16"});
  train("narrow0", {"parallel.reduce=bf16", "parallel.zero=0"});
  CHECK(difference(place, "narrow", "narrow0") < 1e-4);  // a last bit of f32 may turn the rounding to bf16
  CHECK(difference(place, "flat0", "narrow") > 1e-6);
  CHECK(difference(place, "flat0", "narrow") < 1e-2);
  train("narrow3", {"parallel.reduce=bf16", "parallel.zero=3", "parallel.two_level=true", "parallel.node_ranks=2"});
  CHECK(difference(place, "flat3", "narrow3") < 1e-2);
  CHECK(train("large", {"parallel.two_level=true", "parallel.node_ranks=7", "parallel.zero=0"}) == place.metrics("flat0"));
  CHECK_THAT(place.run("large", "log.txt"), ContainsSubstring("warning: parallel.node_ranks = 7 is more than the 4 ranks"));
}

TEST_CASE("ranks of a machine read each other's gradients where they are, if they may") {
  const Workplace place;
  for (const std::string shared : {"true", "false"}) {
    CAPTURE(shared);
    Process run(place.scratch.path(),
                Workplace::arguments({"train.name=" + shared, "parallel.shared_memory=" + shared, "train.steps=100000"}), 2);
    while (run.running() && place.lines(shared) < 2) usleep(10000);
    REQUIRE(run.running());
    for (const auto& [rank, pid] : launched_ranks(place.scratch.path())) {
      std::map<std::string, int> seen;  // mappings of gradients by their protection
      std::istringstream maps(text_of_file("/proc/" + std::to_string(pid) + "/maps"));
      for (std::string line, range, protection; std::getline(maps, line);)
        if (line.find("/memfd:gradients") != std::string::npos && std::istringstream(line) >> range >> protection)
          ++seen[protection];
      if (shared == "true") CHECK(seen == std::map<std::string, int>{{"r--s", 1}, {"rw-s", 1}});
      if (shared == "false") CHECK(seen.empty());
    }
    run.signal(SIGKILL);
    run.wait();
  }
}

TEST_CASE("groups of replicas divide a copy of the state each, and train the model of one copy") {
  const Workplace place;
  const auto train = [&](const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"train.name=" + name, "train.microbatch=1", "train.compare_every=5"});
    succeed(place.train(settings, 4));
    return place.metrics(name);
  };
  const auto saved_by = [&](const std::string& name) {
    std::string ranks;
    for (int rank = 0; rank < 4; ++rank)
      if (std::filesystem::exists(place.scratch /
                                  ("runs/" + name + "/checkpoints/step-00000020/shard-0000" + std::to_string(rank) + ".h5")))
        ranks += std::to_string(rank);
    return ranks;
  };
  for (const std::string zero : {"1", "2", "3"}) {
    CAPTURE(zero);
    train("flat" + zero, {"parallel.zero=" + zero});
    train("pairs" + zero, {"parallel.zero=" + zero, "parallel.shard=2"});
    CHECK(difference(place, "flat" + zero, "pairs" + zero) < 2e-6);
    CHECK(saved_by("pairs" + zero) == "01");
  }
  train("once", {"parallel.zero=3", "parallel.shard=2", "parallel.reduce_when=step"});
  CHECK(difference(place, "flat3", "once") < 2e-6);
  train("alone", {"parallel.zero=3", "parallel.shard=1"});
  CHECK(difference(place, "flat3", "alone") < 2e-6);
  CHECK(saved_by("alone") == "0");
  CHECK(train("exact", {"parallel.numerics=invariant"}) ==
        train("exact2", {"parallel.numerics=invariant", "parallel.zero=2", "parallel.shard=2"}));
  train("narrow", {"parallel.reduce=bf16", "parallel.shard=2"});
  CHECK(difference(place, "flat1", "narrow") > 1e-6);
  CHECK(difference(place, "flat1", "narrow") < 1e-2);
}

TEST_CASE("a number of replicas that cannot divide the state is refused") {
  const Workplace place;
  const auto refused = [&](std::vector<std::string> settings) {
    settings.push_back("train.name=refused");
    const Ended ended = place.train(settings, 4);
    CHECK(ended.code == 2);
    return ended.err;
  };
  CHECK_THAT(refused({"parallel.shard=3"}),
             ContainsSubstring("parallel.shard 3 does not divide the 4 replicas of this start: use a divisor, or 0"));
  CHECK_THAT(refused({"parallel.shard=2", "parallel.zero=0"}), ContainsSubstring("needs parallel.zero of 1, 2 or 3"));
  CHECK_THAT(refused({"parallel.shard=2", "parallel.two_level=true"}), ContainsSubstring("set parallel.two_level to false"));
}

TEST_CASE("a run continues on another number of replicas, sharded or not") {
  const Workplace place;
  const std::vector<std::string> settings{"train.microbatch=1", "train.schedule=constant"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return more;
  };
  succeed(place.train(with({"train.name=whole"})));
  int steps = 5;
  for (const auto& [replicas, division] : std::vector<std::pair<int, std::string>>{
           {4, "parallel.shard=2"}, {1, "parallel.zero=1"}, {4, "parallel.zero=0"}, {4, "parallel.shard=2"}}) {
    const Ended ended = place.train(with({"train.name=parts", "train.steps=" + std::to_string(steps), division}), replicas);
    succeed(ended);
    CHECK((ended.out.find("resumed after step " + std::to_string(steps - 5)) != std::string::npos) == (steps > 5));
    steps += 5;
  }
  const auto whole = place.metrics("whole"), parts = place.metrics("parts");
  const auto losses = [](const std::vector<Json>& metrics) {
    std::vector<double> found;
    for (const auto& line : metrics)
      if (line.contains("loss")) found.push_back(line.at("loss"));
    return found;
  };
  const auto a = losses(whole), b = losses(parts);
  REQUIRE(a.size() == 20);
  REQUIRE(b.size() == 20);
  for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 2e-6 * a[i]);
}

TEST_CASE("with invariant numerics a run goes from mesh to mesh to the bits of one rank") {
  const Workplace place;
  for (const auto& [dtype, rounding] : {std::pair("f32", "nearest"), std::pair("bf16", "stochastic")}) {
    if (kSanitized && rounding == std::string("nearest")) continue;
    const auto settings = [&](const std::string& name, const std::string& steps, std::vector<std::string> mesh) {
      mesh.insert(mesh.end(),
                  {"train.name=" + name + "-" + dtype, "train.steps=" + steps, "train.microbatch=1", "train.schedule=constant",
                   "model.layers=4", "model.heads=4", "parallel.numerics=invariant", "parallel.max_tp=4",
                   "kernels.dtype=" + std::string(dtype), "train.rounding=" + std::string(rounding)});
      return mesh;
    };
    succeed(place.train(settings("whole", "20", {})));
    succeed(place.train(settings("moved", "5", {"parallel.pp=2", "parallel.tp=2"}), 4));
    succeed(place.train(settings("moved", "10", {"parallel.pp=4", "parallel.schedule=zero_bubble", "parallel.zero=2"}), 4));
    succeed(place.train(settings("moved", "15", {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.zero=3"}), 4));
    succeed(place.train(settings("moved", "20", {"parallel.tp=4", "parallel.sequence=false"}), 4));
    // Steps, losses and gradient norms; a run that ends evaluates once more.
    const auto steps = [&, dtype = std::string(dtype)](const std::string& name) {
      std::vector<Json> lines;
      for (const auto& line : place.metrics(name + "-" + dtype))
        if (line.contains("loss") || line.at("step") == 10 || line.at("step") == 20) lines.push_back(line);
      return lines;
    };
    INFO(dtype);
    CHECK(steps("moved") == steps("whole"));
    CHECK(place.differ("moved-" + std::string(dtype), "whole-" + std::string(dtype)) == 0);
  }
}

TEST_CASE("with invariant numerics and grouped queries a run continues on the same mesh and on others") {
  const Workplace place;
  const auto train = [&](const std::string& name, const std::string& steps, std::vector<std::string> mesh, int ranks) {
    mesh.insert(mesh.end(), {"train.name=" + name, "train.steps=" + steps, "train.microbatch=1", "train.warmup=1",
                             "train.schedule=constant", "train.eval_every=0", "model.heads=8", "model.kv_heads=2",
                             "parallel.numerics=invariant", "parallel.max_tp=8", "checkpoint.every=2"});
    CAPTURE(name, steps, ranks);
    succeed(place.train(mesh, ranks));
  };
  train("whole", "10", {}, 1);
  const std::vector<std::string> tensor{"parallel.tp=4"}, both{"parallel.tp=2", "parallel.zero=1"}, data{"parallel.zero=3"};
  train("moved", "2", tensor, 4);
  train("moved", "4", tensor, 4);
  train("moved", "6", both, 4);
  train("moved", "8", data, 4);
  train("moved", "10", data, 4);
  CHECK(place.differ("moved", "whole") == 0);
}

TEST_CASE("pipelines and tensor parallelism evaluate and save what one rank does") {
  const Workplace place;
  const std::vector<std::string> model{"model.layers=4", "model.heads=4", "train.microbatch=1", "train.lr=0.003"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), model.begin(), model.end());
    return more;
  };
  succeed(place.train(with({"train.name=one"})));
  for (const auto& [ranks, mesh] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"parallel.pp=2", "parallel.schedule=interleaved", "train.eval_sequences=7"}},
           {4, {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=gpipe"}},
           {3, {"parallel.pp=3", "parallel.schedule=zero_bubble"}},
           {3, {"parallel.pp=3", "parallel.schedule=zero_bubble", "parallel.deferred=1", "train.recompute=full"}},
           {4, {"parallel.pp=4", "parallel.schedule=zero_bubble_v", "train.eval_sequences=7"}}}) {
    auto settings = with(mesh);
    CAPTURE(mesh.front(), mesh.back());
    settings.push_back("train.name=many");
    succeed(place.train(settings, ranks));
    std::vector<std::string> alike = with({"train.name=same"});
    if (mesh.back().starts_with("train.eval")) alike.push_back(mesh.back());
    succeed(place.train(alike));
    CHECK(difference(place, "same", "many") < 2e-6);
    std::filesystem::remove_all(place.scratch / "runs/many");
    std::filesystem::remove_all(place.scratch / "runs/same");
  }
}

TEST_CASE("ten steps, save, resume, ten steps equal twenty steps, to the bit on one mesh") {
  const Workplace place;
  const auto half = [&](const std::string& name, const std::string& steps) {
    succeed(place.train({"train.name=" + name, "train.microbatch=1", "train.schedule=constant", "train.steps=" + steps}, 2));
  };
  half("whole", "20");
  half("halves", "10");
  half("halves", "20");
  std::vector<Json> whole = place.metrics("whole"), halves = place.metrics("halves");
  CHECK(whole == halves);
  CHECK(place.differ("whole", "halves") == 0);
}

TEST_CASE("one rank that is asked to stop stops all, with a save and exit code 75", "[unsanitized]") {
  const Workplace place;
  const auto settings = [](const std::string& name) {
    return std::vector<std::string>{"train.name=" + name, "train.steps=300", "checkpoint.every=0", "train.microbatch=1",
                                    "train.eval_every=0"};
  };
  succeed(place.train(settings("whole"), 2));
  for (const bool by_launcher : {true, false}) {  // mpirun passes SIGUSR1 on; Slurm signals the ranks
    const std::string name = "stopped-" + std::to_string(getpid()) + (by_launcher ? "-all" : "-one");
    Process process(place.scratch.path(), Workplace::arguments(settings(name)), 2);
    while (process.running() && place.lines(name) < 20) usleep(500);
    by_launcher ? process.signal(SIGUSR1) : void(kill(rank_of(name), SIGTERM));
    const Ended ended = process.wait();
    INFO(ended.err << ended.out);
    CHECK(ended.code == 75);
    CHECK(Json::parse(place.run(name, "exit.json")).at("code") == 75);
    CHECK(place.lines(name) < 300);
    succeed(place.train(settings(name), 2));
    CHECK(place.metrics(name) == place.metrics("whole"));
    CHECK(place.differ("whole", name) == 0);
  }
}

TEST_CASE("a problem on every rank is reported once, and no rank is left behind") {
  const Workplace place;
  const auto lines_with = [](const std::string& text, const std::string& part) {
    int64_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  };
  for (const auto& [setting, code, told] : std::vector<std::tuple<std::string, int, std::string>>{
           {"train.lr=-1", 2, "train.lr=-1: must be a number, above 0"}, {"data.train=shards/none.h5", 2, "shards/none.h5"}}) {
    CAPTURE(setting);
    const Ended ended = place.train({"train.batch=4", "train.microbatch=0", setting}, 2);
    INFO(ended.err);
    CHECK(ended.code == code);
    CHECK(lines_with(ended.err, told) == 1);
  }
}

TEST_CASE("ranks that get the headers of many shards from rank 0 train the same model as one") {
  const Workplace place;
  std::filesystem::create_directory(place.scratch / "many");
  for (int i = 0; i < 70; ++i)
    std::filesystem::create_hard_link(place.scratch / "shards/train-00000.h5",
                                      place.scratch / ("many/train-" + std::to_string(10000 + i) + ".h5"));
  const std::string many = "data.train=" + place.scratch / "many";
  succeed(place.train({"train.name=one", "train.microbatch=1", many}));
  succeed(place.train({"train.name=two", "train.microbatch=1", many}, 2));
  CHECK(difference(place, "one", "two") < 2e-6);
  std::filesystem::resize_file(place.scratch / "many/train-10069.h5", 5000);
  const Ended ended = place.train({"train.name=three", "train.microbatch=1", many}, 2);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK(count_of(ended.err, "h5: is truncated: 5000 of ") == 1);
}

}  // namespace trireme
