#include "train/run/mesh_suggestion.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/number_format.h"

namespace trireme {
namespace {

constexpr size_t kMostPlanned = 200;  // candidates to plan before the search gives up

std::string joined(const std::string& lines, const std::string& line) { return lines + (lines.empty() ? "" : "\n") + line; }

// Everything that does not divide, for one number of ranks.
std::string division_problems(const RunConfig& config, int64_t ranks) {
  std::string problems;
  const auto report = [&](const std::string& key, const std::string& problem) {
    problems = joined(problems, key + ": " + problem + ", on " + std::to_string(ranks) + " ranks");
  };
  config.parallel.check([&](const std::string& key, const std::string& problem) { report("parallel." + key, problem); });
  config.check_mesh(report);
  check_copies(config.parallel, config.model, {config.train.steps, config.train.eval_every}, report);
  try {
    const int64_t replicas = mesh_sizes(ranks, config.parallel).dp;
    config.check_replicas(replicas, report);
    config.check_fp8(replicas, report);
  } catch (const ConfigError& error) {
    problems = joined(problems, error.what());
  }
  return problems;
}

struct Candidate {
  RunConfig config;
  double distance;  // from the mesh asked for, in factors of two; tp and microbatch weigh most
  std::string settings;
};

double steps(int64_t from, int64_t to) {
  return std::abs(std::log2(static_cast<double>(std::max<int64_t>(to, 1)) / static_cast<double>(std::max<int64_t>(from, 1))));
}

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

// Sizes of a mesh to try, with the settings that lead to it.
struct Sizes {
  int64_t tp, pp, zero, microbatch, shard;
};

Candidate candidate(const RunConfig& config, int64_t ranks, const Sizes& sizes) {
  const ParallelConfig& asked = config.parallel;
  Candidate one{.config = config, .distance = 0, .settings = ""};
  ParallelConfig& p = one.config.parallel;
  p.dp = ranks / sizes.tp / sizes.pp, p.pp = sizes.pp, p.tp = sizes.tp, p.cp = p.ep = 1, p.zero = sizes.zero, p.shard = sizes.shard;
  one.config.train.microbatch = sizes.microbatch;
  const auto dealt = [](const ParallelConfig& of) { return of.pp * of.stage_chunks(); };
  const bool deal_again = !p.layers.empty() && dealt(p) != dealt(asked);
  if (deal_again) p.layers.clear();
  int64_t& recompute_stages = one.config.train.recompute_stages;
  recompute_stages = std::min(recompute_stages, p.pp);
  const auto changed = [&](const char* key, int64_t from, int64_t to, double weight) {
    if (from == to) return;
    one.distance += weight * std::max(0.5, steps(from, to));
    one.settings += text(one.settings.empty() ? "" : " ", "--set ", key, "=", to);
  };
  changed("parallel.pp", asked.pp, p.pp, 1);
  changed("parallel.tp", asked.tp, p.tp, 1.25);
  changed("parallel.cp", asked.cp, 1, 0.1);
  changed("parallel.ep", asked.ep, 1, 0.1);
  if (asked.dp != 0) changed("parallel.dp", asked.dp, p.dp, 0.1);
  if (p.zero != asked.zero) changed("parallel.zero", asked.zero, p.zero, 0.3 * std::abs(static_cast<double>(p.zero - asked.zero)));
  changed("parallel.shard", asked.shard, p.shard, 0.2);
  changed("train.microbatch", config.train.microbatch, sizes.microbatch, 1.5);
  changed("train.recompute_stages", config.train.recompute_stages, recompute_stages, 0.1);
  if (deal_again) one.settings += " --set parallel.layers=[]";
  return one;
}

std::vector<Candidate> candidates(const RunConfig& config, int64_t ranks) {
  std::vector<Candidate> all;
  std::vector<int64_t> shards{config.parallel.shard}, rows{config.train.microbatch};
  if (shards[0] != 0) shards.push_back(0);
  if (rows[0] != 1) rows.push_back(1);
  for (const int64_t tp : divisors(ranks, config.model.heads))
    for (const int64_t pp : divisors(ranks / tp, 2 * config.model.layers))
      for (int64_t zero = 0; zero <= 3; ++zero)
        for (const int64_t microbatch : rows)
          for (const int64_t shard : shards) {
            Candidate one = candidate(config, ranks, {.tp = tp, .pp = pp, .zero = zero, .microbatch = microbatch, .shard = shard});
            if (division_problems(one.config, ranks).empty()) all.push_back(std::move(one));
          }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  return all;
}

// Bytes of weights, gradients and optimizer state of one replica, over all of its ranks.
int64_t state_bytes(const RunConfig& config) {
  RunConfig one = config;
  one.parallel = {};
  const ArenaSizes sizes = make_plan(one, Mesh(0, 1, one.parallel)).sizes;
  return sizes.weights + sizes.gradients + sizes.optimizer;
}

}  // namespace

std::vector<Plan> stage_plans(const RunConfig& config, int64_t ranks) {
  const MeshSizes mesh = mesh_sizes(ranks, config.parallel);
  std::vector<Plan> plans;
  for (int64_t stage = 0; stage < mesh.pp; ++stage)
    plans.push_back(make_plan(config, Mesh(stage * mesh.cp * mesh.tp, ranks, config.parallel)));
  return plans;
}

int64_t most_bytes(const std::vector<Plan>& stages) {
  int64_t most = 0;
  for (const Plan& plan : stages) most = std::max(most, plan.device_bytes());
  return most;
}

std::string mesh_problems(const RunConfig& config, int64_t ranks, int64_t memory) {
  std::string problems = division_problems(config, ranks);
  if (!problems.empty() || memory == 0) return problems;
  const int64_t needed = most_bytes(stage_plans(config, ranks));
  if (needed <= memory) return "";
  return text("a rank needs ", human_bytes(static_cast<double>(needed)), ", more than --memory ",
              human_bytes(static_cast<double>(memory)));
}

std::optional<std::string> nearest_mesh(const RunConfig& config, int64_t ranks, int64_t memory) {
  size_t planned = 0;
  for (const Candidate& one : candidates(config, ranks)) {
    if (memory > 0 && ++planned > kMostPlanned) return std::nullopt;
    if (memory > 0 && most_bytes(stage_plans(one.config, ranks)) > memory) continue;
    return one.settings;
  }
  return std::nullopt;
}

std::optional<FittingMesh> fewest_ranks(const RunConfig& config, int64_t ranks, int64_t memory) {
  constexpr int64_t kRange = 64, kMostRanks = 1 << 20;
  const int64_t at_least = state_bytes(config) / memory;  // each rank holds a part at best
  int64_t n = 1;
  while (n <= ranks || n < at_least) n *= 2;
  for (const int64_t last = kRange * n; n <= std::min(last, kMostRanks); n *= 2)
    if (const std::optional<std::string> settings = nearest_mesh(config, n, memory)) return FittingMesh{n, *settings};
  return std::nullopt;
}

}  // namespace trireme
