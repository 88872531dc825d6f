#include "train/step/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/piece_table.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"
#include "parallel/timeline.h"
#include "train/step/host_state.h"

namespace trireme {
namespace {

// Returns the component before the last dot: "layers.3.attention.out" -> "attention". All norms are
// one group.
std::string group_of(const std::string& weight) {
  const std::string path = weight.substr(0, weight.rfind('.'));
  const std::string part = path.substr(path.rfind('.') + 1);
  return part.ends_with("norm") ? "norms" : part;
}

// Groups the parameters of the whole model, whichever part a rank holds.
std::vector<ParameterGroup> group(ModelConfig config) {
  config.vocab_multiple = 1;  // padding does not count
  std::vector<ParameterGroup> groups;
  StageWeights weights;
  declare_whole(weights, config, [&](UnitKind, Tensor&, const WeightSpec& spec) {
    const std::string name = group_of(spec.name);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) { return g.name == name; });
    if (at == groups.end()) at = groups.insert(groups.end(), {.name = name});
    at->count += spec.size();
  });
  return groups;
}

// Counts the ops of a step with this many microbatches.
Tally walk(TrainState& run, int64_t microbatches) {
  const int64_t rows = microbatches * run.stage.shape().rows, context = run.stage.shape().context;
  const Tensor ids(nullptr, Dtype::i32, Place::none, {rows, context});
  run.device.measure(true);
  const int64_t step = run.config.parallel.apart_after;  // the first after it
  train_step(run, {.tokens = ids, .targets = ids, .positions = ids, .document_start = ids, .valid = rows * context}, step);
  return run.device.tally();
}

// Extrapolates `one` to a longer step: one + rounds * (two - one).
void extrapolate(Tally& one, const Tally& two, double rounds) {
  for (const auto& [name, more] : two) {
    OpCount& count = one[name];
    count.flops += rounds * (more.flops - count.flops);
    count.bytes += rounds * (more.bytes - count.bytes);
    const auto add = [rounds](int64_t& of_one, int64_t of_two) {
      of_one += static_cast<int64_t>(std::llround(rounds * static_cast<double>(of_two - of_one)));
    };
    add(count.calls, more.calls);
    for (const auto& [shape, calls] : more.shapes) add(count.shapes[shape], calls);
  }
}

// Lists the matrix products of a step: none on a stage with the embedding alone.
std::vector<ProductShape> products_of(const Tally& step) {
  std::vector<ProductShape> products;
  const auto found = step.find(Matmul::name);
  if (found == step.end()) return products;
  for (const auto& [shape, calls] : found->second.shapes) {
    products.push_back(std::get<ProductShape>(shape));
    products.back().count = calls;
  }
  return products;
}

// Lists the attention ops of a step that have a choice of kernels. With exact sums there is none:
// their order must not depend on the mesh.
std::vector<AttentionShape> attention_of(const Tally& step, bool exact) {
  std::vector<AttentionShape> list;
  if (exact) return list;
  for (const char* op : {AttentionForward::name, AttentionBackward::name})
    if (const auto at = step.find(op); at != step.end())
      for (const auto& [shape, calls] : at->second.shapes) list.push_back(std::get<AttentionShape>(shape));
  return list;
}

// Takes the collectives out of the compute lane's ops, and adds those of other lanes. A collective's name
// ends with its axis, after a blank. Other ops of the communication lane are not traffic.
Tally take_traffic(Tally& compute, Tally lanes) {
  const auto travels = [](const auto& op) { return op.first.find(' ') != std::string::npos; };
  std::erase_if(lanes, [&](const auto& op) { return !travels(op); });
  for (auto op = compute.begin(); op != compute.end();) {
    const bool moves = travels(*op);
    if (moves) {
      OpCount& count = lanes[op->first];
      count.calls += op->second.calls, count.bytes += op->second.bytes;
    }
    op = moves ? compute.erase(op) : std::next(op);
  }
  return lanes;
}

// The traffic of an outer step, if there are any.
Tally traffic_of_meeting(TrainState& run) {
  run.device.measure(true);
  const ParallelConfig& parallel = run.config.parallel;
  run.optimizer.meet(run.device.compute(), parallel.apart_after + parallel.local_steps);
  Tally compute = run.device.tally();
  return take_traffic(compute, run.device.side_tally());
}

// Counts the ops of a step and a rank's traffic.
void count_step(Plan& plan, TrainState& run) {
  const int64_t microbatches = plan.microbatches, stages = plan.stages;
  const bool few = microbatches <= 2 * stages;
  plan.step = walk(run, few ? microbatches : stages);
  Tally traffic = run.device.side_tally();
  // Every microbatch costs the same, so each further round adds as much as the second.
  if (!few) {
    const double rounds = static_cast<double>(microbatches - stages) / static_cast<double>(stages);
    const Tally two = walk(run, 2 * stages);
    extrapolate(plan.step, two, rounds);
    extrapolate(traffic, run.device.side_tally(), rounds);
  }
  plan.traffic = take_traffic(plan.step, std::move(traffic));
  plan.outer_traffic = traffic_of_meeting(run);
  plan.products = products_of(plan.step);
  plan.attention = attention_of(plan.step, run.config.parallel.exact());
  const auto flops = [&](const char* op) { return plan.step.contains(op) ? plan.step.at(op).flops : 0; };
  plan.product_flops = flops(Matmul::name);
  plan.attention_flops = 3 * flops(AttentionForward::name);
}

// Bytes of the largest product that GELU's gradient follows: where the two are not fused, it is in scratch memory.
int64_t apart_bytes(const std::vector<ProductShape>& products, Dtype dtype) {
  int64_t most = 0;
  for (const ProductShape& p : products)
    if (p.gelu_input) most = std::max(most, p.m * p.n * bytes_of(p.result(dtype)));
  return most;
}

void count_memory(Plan& plan, const TrainState& run) {
  const RunConfig& config = run.config;
  plan.sizes = run.arenas.peaks();
  plan.product_scratch = apart_bytes(plan.products, dtype_of(config.kernels.dtype)), plan.sum_scratch = run.sync.sum_bytes();
  plan.in_flight =
      slots_of(make_schedule(config.parallel.stage_schedule(), pipeline_shape(config, run.mesh.replicas()), run.mesh.pp().rank()));
  if (config.train.offload == Offload::optimizer) plan.pinned = plan.sizes.optimizer;
  const std::vector<TensorSlice> saved = state_slices(run, Ownership::saved);
  const int64_t state = bytes_of(saved);
  plan.pieces = std::ssize(saved);
  if (config.checkpoint.async) plan.copy = state;
  // A rollback during a run reads a GPU's state back through host memory.
  if (config.train.on_bad_step == BadStep::rollback && config.kernels.device == DeviceChoice::cuda)
    plan.copy += bytes_of(state_slices(run, Ownership::held));
  if (config.checkpoint.memory_every > 0) plan.in_memory = 3 * state;  // two kept, one being written
}

}  // namespace

// The first copy of the state is saved, by the first ranks; what copies have of their own, by all.
CheckpointSize checkpoint_size(const RunConfig& config, int64_t ranks) {
  constexpr int64_t kMost = 61;  // ranks that are looked at; a prime, so that they differ on all axes
  const bool apart = config.parallel.local() || config.parallel.compresses();
  const int64_t copies = Mesh(0, ranks, config.parallel).copies(), savers = apart ? ranks : ranks / copies;
  const int64_t looked_at = std::min(savers, kMost);
  CheckpointSize found;
  for (int64_t i = 0; i < looked_at; ++i) {
    Device device(Place::none);
    const Mesh mesh(i * savers / looked_at, ranks, config.parallel);
    const int64_t pieces = std::ssize(state_slices(TrainState(config, mesh, device, {}), Ownership::saved));
    found.files += pieces > 0, found.pieces += pieces;
    found.most_pieces = std::max(found.most_pieces, pieces);
  }
  found.files = found.files * savers / looked_at, found.pieces = found.pieces * savers / looked_at;
  // One rank alone would save one piece of each tensor.
  RunConfig alone = config;
  alone.parallel = {.dp = 1};
  alone.parallel.compress = config.parallel.compress, alone.parallel.compress_rank = config.parallel.compress_rank;
  alone.parallel.local_steps = config.parallel.local_steps;
  alone.train.microbatch = 1;
  Device device(Place::none);
  for (const TensorSlice& whole : state_slices(TrainState(alone, Mesh(0, 1, alone.parallel), device, {}), Ownership::saved)) {
    const bool own = is_of_each_copy(whole.name);
    const int64_t bytes = whole.local.bytes() * (own ? copies : 1);
    ++found.tensors, found.bytes += bytes, found.apart += own ? bytes : 0;
  }
  return found;
}

int64_t CheckpointSize::manifest_bytes() const { return 95 * (tensors + files) + 4096; }

std::string CheckpointSize::problem() const {
  constexpr int64_t kPiece = 160;  // bytes in a file's table
  if (files > static_cast<int64_t>(kMostFiles))
    return text("a checkpoint would have ", files, " files; at most ", kMostFiles, " are read: use fewer ranks");
  if (most_pieces > kMostTableBytes / kPiece)
    return text("a file of a checkpoint would have ", most_pieces, " pieces of tensors; at most ", kMostTableBytes / kPiece,
                " are read: raise parallel.pp, or lower parallel.zero");
  return "";
}

namespace {

// All pairs of tokens of a sample, relative to those that attention computes.
double all_pairs_of(const ModelConfig& model) {
  const auto tokens = static_cast<double>(model.context);
  return tokens * tokens / attention_pairs(model.context, model.context, model.window);
}

}  // namespace

double Plan::full_flops() const { return product_flops + attention_flops * all_pairs; }

double Plan::executed_flops() const {
  double flops = 0;
  for (const auto& [name, op] : step) flops += op.flops;
  return flops;
}

double Plan::fp8_product_flops() const {
  double flops = 0;
  for (const ProductShape& p : products)
    if (p.bits8) flops += p.flops() * static_cast<double>(p.count);
  return flops;
}

namespace {

// Durations of the pipeline's actions, in forwards. Stages that compute again do so before the input's gradient.
ActionTimes times_of(const RunConfig& config) {
  ActionTimes times;
  if (config.recomputing_stages() < config.parallel.pp) return times;
  constexpr double kForwards = 3;  // in the work of a layer
  const ModelWork work = work_of(config.model, config.train.recompute, config.parallel.pp);
  times.backward_input += kForwards * (work.attention_again + work.mlp_again);
  return times;
}

}  // namespace

Plan make_plan(const RunConfig& config, const Mesh& mesh) {
  Device device(Place::none);
  TrainState run(config, mesh, device, {});
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const PipelineShape pipeline = pipeline_shape(config, mesh.replicas());

  Plan plan;
  for (const Comm& axis : mesh.axes()) plan.axes.push_back({.name = axis.axis(), .size = axis.size()});
  plan.peers = mesh.most_peers(config.kernels.device == DeviceChoice::cuda);
  plan.replicas = mesh.replicas(), plan.copies = mesh.copies(), plan.stage = mesh.pp().rank(), plan.stages = mesh.pp().size();
  plan.microbatches = pipeline.microbatches;
  plan.tokens = config.train.batch * config.model.context, plan.all_pairs = all_pairs_of(config.model);
  if (plan.stages > 1) plan.bubble = bubble_of(config.parallel.schedule, pipeline, times_of(config));
  count_step(plan, run);
  count_memory(plan, run);
  plan.groups = group(config.model);
  for (const ParameterGroup& g : plan.groups) plan.parameters += g.count;
  if (config.train.recompute == Recompute::none) return plan;
  // Recomputation does not count as work of the model.
  RunConfig once = config;
  once.train.recompute = Recompute::none, once.parallel.layers.clear();
  for (const int64_t count : half_layers_of_chunks(config, pipeline))
    once.parallel.layers.push_back(static_cast<double>(count) / 2);
  const Plan plain = make_plan(once, mesh);
  plan.product_flops = plain.product_flops, plan.attention_flops = plain.attention_flops;
  return plan;
}

}  // namespace trireme
