#include "train/run/memory_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/number_format.h"
#include "kernels/cuda_machine.h"
#include "parallel/host_collectives.h"
#include "train/run/mesh_suggestion.h"

namespace trireme {
namespace {

// Bytes of a GPU for what no arena holds: scratch memory of products, attention and sums, and NCCL's buffers.
int64_t outside_of(const Plan& plan) {
  const FusedWorkspace limits;
  int64_t workspace = 0;
  const auto matrices = [](const AttentionShape& s) { return 2 * s.rows * s.heads * s.tokens * s.tokens; };
  for (const AttentionShape& s : plan.attention)
    if (s.backward) workspace = std::max(workspace, std::min(matrices(s), std::max(limits.usual, matrices(s) / s.kv_heads)));
  return (int64_t{256} << 20) + std::max(std::min(workspace, limits.most), plan.product_scratch) + plan.sum_scratch;
}

// Bytes of this machine for checkpoint.memory_every: its own ranks' copies and those of one other node.
int64_t kept_in_memory(const RunConfig& config, const Plan& plan, const Nodes& nodes, const Comm& all) {
  if (config.checkpoint.memory_every == 0) return 0;
  std::vector<double> by_node(static_cast<size_t>(nodes.count()));
  by_node[static_cast<size_t>(nodes.here())] += static_cast<double>(plan.in_memory);
  if (nodes.count() > 1) by_node[static_cast<size_t>((nodes.here() + 1) % nodes.count())] += static_cast<double>(plan.in_memory);
  by_node = sum(all, by_node);
  const double here = by_node[static_cast<size_t>(nodes.here())];
  return static_cast<int64_t>(nodes.pretended() ? std::accumulate(by_node.begin(), by_node.end(), 0.0) : here);
}

// Bytes of this machine for copies of the state that is being saved.
int64_t copied_here(const Plan& plan, const World& world) {
  int64_t bytes = 0;
  for (const std::string& of_rank : world.tell_node(std::to_string(plan.copy))) bytes += std::stoll(of_rank);
  return bytes;
}

// Memory of one machine without GPUs, or of one GPU.
struct Budget {
  int64_t bytes, ranks;  // ranks that share it
  int64_t kept = 0;      // see kept_in_memory
  int64_t copied = 0;    // for asynchronous saves, by all of these ranks: those of one copy of the state save
  bool gpu = false;
  int64_t of_rank(const Plan& plan) const { return gpu ? plan.sizes.total() - plan.pinned + outside_of(plan) : plan.sizes.total(); }
  int64_t needed(const Plan& plan) const { return of_rank(plan) * ranks + kept + copied; }
};

// The mildest settings for --set with which the run fits; "" if none do.
std::string settings_that_fit(const RunConfig& config, const Plan& plan, const Mesh& mesh, const Budget& memory) {
  const int64_t of_replica = config.train.batch / plan.replicas, rows = config.microbatch_rows(plan.replicas);
  std::string settings;
  RunConfig less = config;
  const auto bytes_with = [&](const Plan& planned) { return memory.needed(planned) - (less.checkpoint.async ? 0 : memory.copied); };
  const auto fits_with = [&](const std::string& setting) {
    settings += (settings.empty() ? "--set " : " --set ") + setting;
    return bytes_with(make_plan(less, mesh)) <= memory.bytes;
  };
  for (int64_t fewer = rows / 2; fewer >= 1; fewer /= 2) {
    if (of_replica % fewer != 0) continue;
    less.train.microbatch = fewer, settings.clear();
    if (fits_with(text("train.microbatch=", fewer))) return settings;
  }
  if (memory.copied > 0 && config.checkpoint.async) {
    less.checkpoint.async = false;
    if (bytes_with(plan) <= memory.bytes) return "--set checkpoint.async=false";
    if (fits_with("checkpoint.async=false")) return settings;
  }
  if (config.parallel.schedule == Schedule::zero_bubble && config.parallel.deferred != 1) {
    less.parallel.deferred = 1;
    if (fits_with("parallel.deferred=1")) return settings;
  }
  less.train.recompute = Recompute::full, less.train.recompute_stages = 0;
  const std::string all_stages = config.train.recompute_stages > 0 ? " --set train.recompute_stages=0" : "";
  return fits_with("train.recompute=full" + all_stages) ? settings : "";
}

// The largest model that fits here, and the ranks that this one needs, as words.
std::string size_that_fits(const RunConfig& config, const Plan& plan, const Budget& memory, int64_t ranks) {
  const ArenaSizes& sizes = plan.sizes;
  const int64_t state = (sizes.weights + sizes.gradients + sizes.optimizer) * memory.ranks;
  const double share = static_cast<double>(memory.bytes) / static_cast<double>(memory.needed(plan));
  const std::string most = human_count(share * static_cast<double>(plan.parameters));
  std::string words = text("weights, gradients and moments alone take ", human_bytes(static_cast<double>(state)), "; about ", most,
                           " parameters fit instead of ", human_count(static_cast<double>(plan.parameters)));
  if (memory.gpu) {
    const int64_t room = memory.bytes / memory.ranks - outside_of(plan);
    const auto more = room > 0 ? fewest_ranks(config, ranks, room) : std::nullopt;
    return more ? text(words, ", or use ", more->ranks, " ranks with a GPU each", more->with_settings()) : words;
  }
  // The copy for asynchronous checkpoints is divided among ranks as the state is.
  const double of_rank = static_cast<double>(memory.bytes) / static_cast<double>(memory.ranks);
  const double without_copy = static_cast<double>(sizes.total()) / static_cast<double>(sizes.total() + plan.copy);
  const auto mesh = fewest_ranks(config, ranks, static_cast<int64_t>(of_rank * without_copy));
  if (!mesh) return words;
  return text(words, ", or use ", mesh->ranks / memory.ranks, " machines like this one", mesh->with_settings());
}

// Refuses what does not fit, with settings or the size that does.
void require_room(const Budget& memory, const RunConfig& config, const Plan& plan, const Mesh& mesh, const std::string& problem) {
  if (memory.needed(plan) <= memory.bytes) return;
  if (const std::string settings = settings_that_fit(config, plan, mesh, memory); !settings.empty())
    throw ConfigError(text(problem, "; it fits with ", settings));
  throw ConfigError(problem + "; " + size_that_fits(config, plan, memory, mesh.all().size()));
}

// A GPU's memory may be shared with ranks of this run, and with others. Each rank may see another GPU alone.
Budget memory_of_gpu(const World& world) {
  const int64_t ranks = ranks_on_gpu(world.tell_node(gpu_uuid()), static_cast<size_t>(world.local_rank()));
  return {.bytes = gpu_memory().free, .ranks = ranks, .gpu = true};
}

}  // namespace

int64_t ranks_on_gpu(const std::vector<std::string>& gpus, size_t mine) { return std::ranges::count(gpus, gpus.at(mine)); }

std::string shape_problems(const ModelConfig& model, const KernelLimits& limits, const std::string& gpu) {
  std::string problems;
  const auto report = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : "\n") + problem + ", or set kernels.device to cpu";
  };
  if (model.head_size > limits.head_size)
    report(text("model.head_size = ", model.head_size, ": attention on ", gpu, ", whose threads share ", limits.shared_bytes / 1024,
                " KiB, takes heads of at most ", limits.head_size,
                ": raise model.heads, or lower model.head_size (by default it is model.width / model.heads)"));
  const bool odd = model.width % limits.pack != 0;
  if (const int64_t most = odd ? limits.odd_width : limits.width; model.width > most)
    report(text("model.width = ", model.width, ": norms on ", gpu, " take at most ", limits.width, " columns, ", limits.odd_width,
                " if they are not a multiple of ", limits.pack, ": lower model.width"));
  return problems;
}

void require_shapes(const RunConfig& config, const Device& device) {
  if (device.place() != Place::cuda) return;
  const std::string problems = shape_problems(config.model, kernel_limits(), cuda_facts().device);
  if (!problems.empty()) throw ConfigError(problems);
}

void require_memory(const RunConfig& config, const Plan& plan, const Placement& place, const World& world) {
  const bool cuda = place.device.place() == Place::cuda;
  // Before the others of this GPU take theirs: they do so once all of the node have sent their copies' sizes, below.
  const Budget gpu = cuda ? memory_of_gpu(world) : Budget{};
  const Budget host{.bytes = place.device.cpu().memory_bytes,
                    .ranks = world.local_size(),
                    .kept = kept_in_memory(config, plan, place.nodes, place.mesh.all()),
                    .copied = copied_here(plan, world)};
  const auto shown = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  if (cuda)
    require_room(gpu, config, plan, place.mesh,
                 text("this run needs ", shown(gpu.needed(plan)), " of ", cuda_facts().device, ", which has ", shown(gpu.bytes),
                      " free of ", shown(gpu_memory().total)));
  const int64_t needed = cuda ? plan.pinned * host.ranks + host.kept + host.copied : host.needed(plan);
  const std::string problem = text("this run needs ", shown(needed), ", but the machine has ", shown(host.bytes));
  if (!cuda) return require_room(host, config, plan, place.mesh, problem);
  if (needed > host.bytes)
    throw ConfigError(text(problem,
                           " for train.offload = optimizer: set train.offload to none, or divide the state among more ranks "
                           "(parallel.zero is ",
                           config.parallel.zero, ", parallel.shard ", config.parallel.shard, ")"));
}

void require_checkpoint(const Plan& plan, const Comm& all) {
  const int64_t files = std::llround(sum(all, std::vector{plan.pieces > 0 ? 1.0 : 0.0}).front());
  const CheckpointSize size{.files = files, .most_pieces = largest(all, plan.pieces)};
  if (const std::string problem = size.problem(); !problem.empty()) throw ConfigError(problem);
}

}  // namespace trireme
