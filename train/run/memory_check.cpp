#include "train/run/memory_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/number_format.h"
#include "base/text_stream.h"
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

int64_t bytes_of_state(const Plan& plan) { return plan.sizes.weights + plan.sizes.gradients + plan.sizes.optimizer; }

// Memory of one machine without GPUs, or of one GPU.
struct Budget {
  int64_t bytes = 0, ranks = 0;  // ranks that share it
  MachineNeed need{};            // of a machine without GPUs; those of one copy of the state save, so only these copy
  bool gpu = false;
  int64_t arenas(const Plan& plan) const { return gpu ? (plan.device_bytes() + outside_of(plan)) * ranks : need.arenas; }
  int64_t state(const Plan& plan) const { return gpu ? bytes_of_state(plan) * ranks : need.state; }
  int64_t needed(const Plan& plan) const { return arenas(plan) + need.kept + need.copied; }
};

// Bytes of the arenas with another config on the same mesh. Plans one rank of each stage that shares the memory.
int64_t arenas_with(const RunConfig& config, const Mesh& mesh, const Budget& memory) {
  if (memory.gpu) return memory.arenas(make_plan(config, mesh));
  const int64_t all = mesh.all().size();
  const MeshSizes sizes = mesh_sizes(all, config.parallel);
  int64_t bytes = 0;
  for (const auto& [stage, ranks] : memory.need.of_stage) {
    const bool own = stage == mesh.pp().rank();
    const Plan plan = own ? make_plan(config, mesh) : make_plan(config, Mesh(stage * sizes.cp * sizes.tp, all, config.parallel));
    bytes += plan.sizes.total() * ranks;
  }
  return bytes;
}

// The mildest settings for --set with which the run fits; "" if none do.
std::string settings_that_fit(const RunConfig& config, const Plan& plan, const Mesh& mesh, const Budget& memory) {
  const int64_t of_replica = config.train.batch / plan.replicas, rows = config.microbatch_rows(plan.replicas);
  std::string settings;
  RunConfig less = config;
  const MachineNeed& need = memory.need;
  const auto fits = [&](int64_t arenas) { return arenas + need.kept + (less.checkpoint.async ? need.copied : 0) <= memory.bytes; };
  const auto fits_with = [&](const std::string& setting) {
    settings += (settings.empty() ? "--set " : " --set ") + setting;
    return fits(arenas_with(less, mesh, memory));
  };
  for (int64_t fewer = rows / 2; fewer >= 1; fewer /= 2) {
    if (of_replica % fewer != 0) continue;
    less.train.microbatch = fewer, settings.clear();
    if (fits_with(text("train.microbatch=", fewer))) return settings;
  }
  if (need.copied > 0 && config.checkpoint.async) {
    less.checkpoint.async = false;
    if (fits(memory.arenas(plan))) return "--set checkpoint.async=false";
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
  const auto state = static_cast<double>(memory.state(plan));
  const double share = static_cast<double>(memory.bytes) / static_cast<double>(memory.needed(plan));
  const std::string most = human_count(share * static_cast<double>(plan.parameters));
  std::string words = text("weights, gradients and moments alone take ", human_bytes(state), "; about ", most,
                           " parameters fit instead of ", human_count(static_cast<double>(plan.parameters)));
  if (memory.gpu) {
    const int64_t room = memory.bytes / memory.ranks - outside_of(plan);
    const auto more = room > 0 ? fewest_ranks(config, ranks, room) : std::nullopt;
    return more ? text(words, ", or use ", more->ranks, " ranks with a GPU each", more->with_settings()) : words;
  }
  // The copy for asynchronous checkpoints is divided among ranks as the state is.
  const double of_rank = static_cast<double>(memory.bytes) / static_cast<double>(memory.ranks);
  const auto arenas = static_cast<double>(memory.need.arenas), copied = static_cast<double>(memory.need.copied);
  const double without_copy = arenas / (arenas + copied);
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

std::string need_words(const Plan& plan) {
  return text(plan.sizes.total(), ' ', bytes_of_state(plan), ' ', plan.pinned, ' ', plan.copy, ' ', plan.stage);
}

MachineNeed sum_of_needs(const std::vector<std::string>& ranks) {
  MachineNeed need;
  for (const std::string& words : ranks) {
    int64_t arenas = 0, state = 0, pinned = 0, copied = 0, stage = 0;
    TextReader(words) >> arenas >> state >> pinned >> copied >> stage;
    need.arenas += arenas, need.state += state, need.pinned += pinned, need.copied += copied;
    ++need.of_stage[stage];
  }
  return need;
}

std::string host_problem(const RunConfig& config, const MachineNeed& need, int64_t bytes) {
  const int64_t needed = need.pinned + need.copied + need.kept;
  if (needed <= bytes) return "";
  const auto shown = [](int64_t some) { return human_bytes(static_cast<double>(some)); };
  std::string problem = text("this run needs ", shown(needed), ", but the machine has ", shown(bytes)), between = ": ";
  const auto add = [&](int64_t part, const std::string& words) {
    if (part > 0) problem += std::exchange(between, "; ") + shown(part) + words;
  };
  add(need.pinned, text(" for train.offload = optimizer (set train.offload to none, or divide the state among more ranks: ",
                        "parallel.zero is ", config.parallel.zero, ", parallel.shard ", config.parallel.shard, ")"));
  const bool rollback = config.train.on_bad_step == BadStep::rollback;
  const std::string keys = config.checkpoint.async && rollback ? "checkpoint.async to false, and train.on_bad_step to skip"
                           : rollback                          ? "train.on_bad_step to skip"
                                                               : "checkpoint.async to false";
  add(need.copied, text(" for copies of the state (set ", keys, ")"));
  add(need.kept, text(" for checkpoint.memory_every = ", config.checkpoint.memory_every, " (set it to 0)"));
  return problem;
}

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
  // Before the others of this GPU take theirs: they do so once all of the node have sent their needs, below.
  const Budget gpu = cuda ? memory_of_gpu(world) : Budget{};
  Budget host{.bytes = place.device.cpu().memory_bytes, .ranks = world.local_size()};
  const int64_t kept = kept_in_memory(config, plan, place.nodes, place.mesh.all());
  host.need = sum_of_needs(world.tell_node(need_words(plan))), host.need.kept = kept;
  const auto shown = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  if (cuda)
    require_room(gpu, config, plan, place.mesh,
                 text("this run needs ", shown(gpu.needed(plan)), " of ", cuda_facts().device, ", which has ", shown(gpu.bytes),
                      " free of ", shown(gpu_memory().total)));
  if (!cuda)
    require_room(host, config, plan, place.mesh,
                 text("this run needs ", shown(host.needed(plan)), ", but the machine has ", shown(host.bytes)));
  else if (const std::string problem = host_problem(config, host.need, host.bytes); !problem.empty())
    throw ConfigError(problem);
}

void require_checkpoint(const Plan& plan, const Comm& all) {
  const int64_t files = std::llround(sum(all, std::vector{plan.pieces > 0 ? 1.0 : 0.0}).front());
  const CheckpointSize size{.files = files, .most_pieces = largest(all, plan.pieces)};
  if (const std::string problem = size.problem(); !problem.empty()) throw ConfigError(problem);
}

}  // namespace trireme
