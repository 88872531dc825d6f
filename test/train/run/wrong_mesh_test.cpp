// Meshes that cannot be: one clear message, exit code 2, nothing trained, no rank left behind.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

struct WrongMesh {
  int ranks;
  std::vector<std::string> settings;
  std::string told;
};

const std::vector<WrongMesh>& wrong_meshes() {
  static const std::vector<WrongMesh> all{
      {2,
       {"parallel.tp=4", "model.heads=4"},
       "parallel.pp 1 x parallel.cp 1 x parallel.tp 4 = 4 ranks for each replica, but this start has 2 ranks"},
      {2, {"parallel.pp=4", "model.layers=4"}, "start a multiple of 4 ranks"},
      {3, {"parallel.tp=2"}, "this start has 3 ranks: start a multiple of 2 ranks"},
      {2, {"parallel.dp=3", "train.batch=6"}, "parallel.dp 3 x parallel.pp 1 x parallel.cp 1 x parallel.tp 1 = 3 ranks"},
      {2, {"parallel.dp=1"}, "parallel.dp 1 x parallel.pp 1 x parallel.cp 1 x parallel.tp 1 = 1 ranks, but this start has 2 ranks"},
      {2, {"parallel.tp=2", "model.heads=1"}, "parallel.tp=2: must divide model.heads = 1"},
      {3,
       {"parallel.tp=3", "model.heads=6", "model.kv_heads=2", "model.head_size=8", "model.ffn=96"},
       "parallel.tp=3: must divide model.kv_heads = 2 or be a multiple of it"},
      {2, {"parallel.tp=2", "model.ffn=65"}, "parallel.tp=2: must divide model.ffn = 65"},
      {2,
       {"parallel.tp=2", "model.context=33", "train.microbatch=1"},
       "splits the 33 tokens of a microbatch: must be a multiple of parallel.tp = 2, or false"},
      {3, {"parallel.pp=3"}, "parallel.pp=3: must not exceed twice model.layers = 1"},
      {2,
       {"parallel.pp=2", "parallel.schedule=interleaved", "model.layers=1"},
       "parallel.pp=2: times parallel.chunks = 2 must not exceed twice model.layers = 1"},
      {2,
       {"parallel.pp=2", "parallel.schedule=interleaved", "model.layers=4", "train.batch=3", "train.microbatch=1"},
       "interleaved needs microbatches (train.batch / parallel.dp / train.microbatch = 3) in groups of parallel.pp = 2"},
      {2, {"parallel.pp=2", "parallel.chunks=2", "model.layers=4"}, "parallel.chunks=2: needs parallel.schedule = interleaved"},
      {2, {"train.batch=5", "train.microbatch=0"}, "train.batch: must be a multiple of parallel.dp = 2, on 2 ranks"},
      {2, {"train.microbatch=4"}, "train.microbatch: must divide train.batch / parallel.dp = 2, on 2 ranks"},
      {2,
       {"parallel.pp=2", "model.layers=2", "parallel.deferred=1", "train.microbatch=1"},
       "parallel.deferred=1: needs parallel.schedule = zero_bubble"},
      {2, {"parallel.cp=2"}, "parallel.cp=2: context parallelism is not supported yet"},
      {2, {"parallel.ep=2"}, "parallel.ep=2: experts are not supported yet"},
      {2,
       {"parallel.numerics=invariant", "train.microbatch=0"},
       "train.microbatch=0: must be set with parallel.numerics = invariant"},
      {2,
       {"parallel.numerics=invariant", "parallel.max_tp=6", "model.heads=6", "model.head_size=8", "model.ffn=96"},
       "parallel.max_tp=6: must be a power of two with invariant numerics"},
      {2,
       {"parallel.numerics=invariant", "parallel.tp=2", "parallel.max_tp=1"},
       "parallel.max_tp=1: must be a multiple of parallel.tp = 2"},
      {2,
       {"parallel.numerics=invariant", "train.microbatch=1", "parallel.reduce=bf16"},
       "parallel.reduce=bf16: must be f32 with parallel.numerics = invariant"},
      {2, {"parallel.node_ranks=2"}, "parallel.node_ranks=2: needs parallel.two_level = true"},
      {2, {"parallel.zero=4"}, "parallel.zero=4: must be"},
      {2, {"parallel.schedule=2f2b"}, "parallel.schedule=2f2b: must be"},
  };
  return all;
}

// Whether a process runs whose command line holds these words.
bool running(const std::string& words) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(in), {}};
    if (line.starts_with(TRIREME_BUILD "/trireme") && line.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a mesh that cannot be is reported in one message, with exit code 2 and no rank left behind") {
  const Workplace place;
  // mpirun gives ranks that are left this many seconds each to hear SIGCONT and SIGTERM.
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
  for (const WrongMesh& wrong : wrong_meshes()) {
    std::vector<std::string> settings = wrong.settings;
    const std::string name = "wrong-" + std::to_string(getpid());
    settings.push_back("train.name=" + name);
    CAPTURE(wrong.ranks, wrong.settings.front());
    const Ended ended = place.train(settings, wrong.ranks);
    INFO(ended.err);
    CHECK(ended.code == 2);
    const size_t first = ended.err.find(wrong.told);
    CHECK(first != std::string::npos);
    CHECK(ended.err.find(wrong.told, first + 1) == std::string::npos);
    CHECK(!std::filesystem::exists(place.scratch / ("runs/" + name + "/checkpoints")));
    CHECK(!running(name));
  }
  unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}

TEST_CASE("a plan of a mesh that cannot be names the nearest that can") {
  const std::string config = TRIREME_SOURCE "/configs/llama3-8b.yaml";
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", config});
    return run_trireme(TRIREME_SOURCE, more);
  };
  const Ended divides = plan({"--ranks", "64", "--set", "parallel.tp=3"});
  CHECK(divides.code == 2);
  CHECK_THAT(divides.err, ContainsSubstring("parallel.tp: must divide model.heads = 32, on 64 ranks") &&
                              ContainsSubstring("the nearest mesh that works on 64 ranks: --set parallel.tp=4"));
  const Ended memory = plan({"--ranks", "64", "--memory", "20GB"});
  CHECK(memory.code == 2);
  CHECK_THAT(memory.err, ContainsSubstring("more than --memory 18.6 GiB; the nearest mesh that works on 64 ranks: --set "));
  // The suggested mesh works.
  std::vector<std::string> again{"--ranks", "64", "--memory", "20GB"};
  const std::string named = memory.err.substr(memory.err.find("ranks: ") + 7);
  for (size_t at = 0, end = 0; at < named.size(); at = end + 1) {
    end = std::min(named.find_first_of(" \n", at), named.size());
    if (end > at) again.push_back(named.substr(at, end - at));
  }
  CHECK(plan(again).code == 0);
  CHECK(plan({"--memory", "24GB"}).err ==
        "a rank needs 173 GiB, more than --memory 22.4 GiB; no mesh of 1 rank can run this config, but --ranks 8 fits with "
        "--set parallel.tp=8\n");
  CHECK(plan({"--memory", "many"}).err.find("--memory many: must be a size such as 80GB") != std::string::npos);
}

}  // namespace trireme
