#include "train/step/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/json.h"
#include "base/number_format.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"
#include "parallel/timeline.h"
#include "train/step/host_state.h"

namespace trireme {
namespace {

// "layers.3.attention.out" -> "attention": the component before the last dot; every norm is one group.
std::string group_of(const std::string& weight) {
  const std::string path = weight.substr(0, weight.rfind('.'));
  const std::string part = path.substr(path.rfind('.') + 1);
  return part.ends_with("norm") ? "norms" : part;
}

// Of the whole model, whatever part of it a rank holds.
std::vector<ParameterGroup> group(const ModelConfig& config, Device& device) {
  std::vector<ParameterGroup> groups;
  Arena arena(device, Arena::kUnlimited, "parameters");
  StageWeights weights;
  for (const Parameter& parameter : take_weights(weights, config, Dtype::f32, arena)) {
    const std::string name = group_of(parameter.spec.name);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) { return g.name == name; });
    if (at == groups.end()) at = groups.insert(groups.end(), {.name = name});
    at->count += parameter.spec.size();
  }
  return groups;
}

// The ops of a step of this many microbatches.
Tally walk(TrainState& run, int64_t microbatches) {
  const int64_t rows = microbatches * run.stage.shape().rows, context = run.stage.shape().context;
  const Tensor ids(nullptr, Dtype::i32, Place::none, {rows, context});
  run.device.tally().clear();
  run.device.comm_tally().clear();
  train_step(run, {.tokens = ids, .targets = ids, .positions = ids, .document_start = ids, .valid = rows * context}, 0);
  return run.device.tally();
}

// `one` becomes the count of a longer step, which has `rounds` times more of what `two` has more than `one`.
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

// The matrix products of a step.
std::vector<ProductShape> products_of(const Tally& step) {
  std::vector<ProductShape> products;
  for (const auto& [shape, calls] : step.at(Matmul::name).shapes) {
    products.push_back(std::get<ProductShape>(shape));
    products.back().count = calls;
  }
  return products;
}

// Its attentions for which there is a choice: not where a sum's order may not change with the mesh.
std::vector<AttentionShape> attention_of(const Tally& step, bool exact) {
  std::vector<AttentionShape> list;
  if (exact) return list;
  for (const char* op : {AttentionForward::name, AttentionBackward::name})
    if (const auto at = step.find(op); at != step.end())
      for (const auto& [shape, calls] : at->second.shapes) list.push_back(std::get<AttentionShape>(shape));
  return list;
}

struct NamedBytes {
  const char* name;
  int64_t bytes;
  const char* what;
};

std::vector<NamedBytes> arenas_of(const Plan& plan) {
  const ArenaSizes& s = plan.sizes;
  return {{"weights", s.weights, "the step's weights"},
          {"gradients", s.gradients, "f32"},
          {"optimizer", s.optimizer, plan.pinned > 0 ? "moments and masters, f32, pinned on the host" : "moments and masters, f32"},
          {"activations", s.activations, "saved for backward"},
          {"temporaries", s.temporaries, "of a pass or a step, at most"}};
}

std::string row(const char* name, const std::string& value, const std::string& what) {
  char line[200];
  std::snprintf(line, sizeof line, "  %-24s %12s  %s\n", name, value.c_str(), what.c_str());
  return line;
}

}  // namespace

Plan make_plan(const RunConfig& config, const Mesh& mesh) {
  Device device(Place::none);
  TrainState run(config, mesh, device, {});
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const int64_t microbatches = pipeline_shape(config, mesh.replicas()).microbatches, stages = mesh.pp().size();

  Plan plan;
  const bool few = microbatches <= 2 * stages;
  plan.step = walk(run, few ? microbatches : stages);
  Tally traffic = device.comm_tally();
  // Every microbatch does the same: what a second round of them adds, the others add too.
  if (!few) {
    const double rounds = static_cast<double>(microbatches - stages) / static_cast<double>(stages);
    const Tally two = walk(run, 2 * stages);
    extrapolate(plan.step, two, rounds);
    extrapolate(traffic, device.comm_tally(), rounds);
  }
  // Collectives are named with their axis. Those of the compute lane are traffic, too; what else the communication lane does is
  // not.
  const auto travels = [](const auto& op) { return op.first.find(' ') != std::string::npos; };
  std::erase_if(traffic, [&](const auto& op) { return !travels(op); });
  for (auto op = plan.step.begin(); op != plan.step.end();) {
    const bool moves = travels(*op);
    if (moves) {
      OpCount& count = traffic[op->first];
      count.calls += op->second.calls, count.bytes += op->second.bytes;
    }
    op = moves ? plan.step.erase(op) : std::next(op);
  }
  plan.traffic = std::move(traffic);
  plan.products = products_of(plan.step);
  plan.attention = attention_of(plan.step, config.parallel.exact());
  plan.sizes = run.arenas.peaks();
  if (config.train.offload == Offload::optimizer) plan.pinned = plan.sizes.optimizer;
  const int64_t state = bytes_of(state_shards(run, Shards::once));
  if (config.checkpoint.async) plan.copy = state;
  // What a rank holds passes through the host's memory when a GPU's state is read back in the midst of a run.
  if (config.train.on_bad_step == BadStep::rollback && config.kernels.device == DeviceChoice::cuda)
    plan.copy += bytes_of(state_shards(run, Shards::all));
  if (config.checkpoint.memory_every > 0) plan.in_memory = 3 * state;  // two that are kept, one in the making
  plan.groups = group(config.model, device);
  for (const ParameterGroup& g : plan.groups) plan.parameters += g.count;
  plan.replicas = mesh.replicas();
  plan.stage = mesh.pp().rank(), plan.stages = stages, plan.shards = mesh.tp().size();
  plan.microbatches = microbatches, plan.in_flight = run.stage.shape().slots;
  if (stages > 1) plan.bubble = bubble_formula(config.parallel.schedule, pipeline_shape(config, mesh.replicas()), ActionTimes{});
  plan.tokens = config.train.batch * config.model.context;
  plan.product_flops = plan.step[Matmul::name].flops;
  plan.attention_flops = 3 * plan.step[AttentionForward::name].flops;
  if (config.train.recompute == Recompute::none) return plan;
  // What is computed a second time is no work of the model.
  RunConfig once = config;
  once.train.recompute = Recompute::none;
  const Plan plain = make_plan(once, mesh);
  plan.product_flops = plain.product_flops, plan.attention_flops = plain.attention_flops;
  return plan;
}

namespace {

const Plan& largest(const std::vector<Plan>& stages) {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const Plan& a, const Plan& b) { return a.device_bytes() < b.device_bytes(); });
}

std::string mesh_lines(const RunConfig& config, const std::vector<Plan>& stages) {
  const Plan& plan = largest(stages);
  std::string out = "\nMesh: dp " + std::to_string(plan.replicas) + ", pp " + std::to_string(plan.stages) + ", tp " +
                    std::to_string(plan.shards) + ", ZeRO " + std::to_string(config.parallel.zero) + "\n";
  out += row("microbatches", std::to_string(plan.microbatches), "of a replica in a step");
  if (plan.stages == 1) return out;
  out += row("schedule", std::string(name_of(config.parallel.schedule)),
             std::to_string(config.parallel.stage_chunks()) + " pieces of the model a stage");
  out += row("bubble", fixed(100 * plan.bubble, 1) + " %", "idle time of a stage, of its work");
  for (const Plan& stage : stages)
    out +=
        row(("stage " + std::to_string(stage.stage)).c_str(), human_bytes(static_cast<double>(stage.device_bytes())),
            std::to_string(stage.in_flight) + " pieces' activations in flight, " + human_si(stage.model_flops()) + "FLOP a step");
  return out;
}

}  // namespace

std::string plan_table(const RunConfig& config, const std::vector<Plan>& stages) {
  const Plan& plan = largest(stages);
  std::string out = "Model: " + std::string(name_of(config.model.family)) + ", " + std::to_string(config.model.layers) +
                    " layers, width " + std::to_string(config.model.width) + ", context " + std::to_string(config.model.context) +
                    "\n";
  for (const ParameterGroup& g : plan.groups)
    out += row(g.name.c_str(), human_count(static_cast<double>(g.count)),
               fixed(100.0 * static_cast<double>(g.count) / static_cast<double>(plan.parameters), 1) + " %");
  out += row("parameters", human_count(static_cast<double>(plan.parameters)), std::to_string(plan.parameters));
  if (plan.replicas * plan.stages * plan.shards > 1) out += mesh_lines(config, stages);
  out += "\nMemory of a rank" + (plan.stages > 1 ? " of stage " + std::to_string(plan.stage) : "") + ", " +
         std::string(name_of(config.kernels.dtype)) + ", microbatch " + std::to_string(config.microbatch_rows(plan.replicas)) +
         " x " + std::to_string(config.model.context) + "\n";
  for (const NamedBytes& a : arenas_of(plan)) out += row(a.name, human_bytes(static_cast<double>(a.bytes)), a.what);
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  out += row(plan.pinned > 0 ? "total of the GPU" : "total", bytes(plan.device_bytes()),
             std::to_string(plan.device_bytes()) + " bytes");
  if (plan.pinned > 0) out += row("total pinned on the host", bytes(plan.pinned), std::to_string(plan.pinned) + " bytes");
  if (plan.copy > 0)
    out += row("copy for checkpoints", bytes(plan.copy), "of the host's memory; none with checkpoint.async: false");
  if (plan.in_memory > 0)
    out += row("checkpoints in memory", bytes(plan.in_memory), "at most, on several nodes twice: checkpoint.memory_every");
  out += "\nOne step: " + std::to_string(plan.tokens) + " tokens, a rank " + human_si(plan.model_flops()) + "FLOP (products " +
         human_si(plan.product_flops) + ", causal attention " + human_si(plan.attention_flops) + ")\n";
  for (const auto& [name, count] : plan.step)
    out += row(name.c_str(), std::to_string(count.calls) + " calls",
               human_bytes(count.bytes) + (count.flops > 0 ? ", " + human_si(count.flops) + "FLOP" : ""));
  if (!plan.traffic.empty()) out += "\nTraffic of a rank in one step\n";
  for (const auto& [name, count] : plan.traffic)
    out += row(name.c_str(), std::to_string(count.calls) + " calls", human_bytes(count.bytes) + " sent");
  return out;
}

std::string plan_json(const RunConfig& config, const std::vector<Plan>& stages) {
  const Plan& plan = largest(stages);
  Json out;
  out["name"] = config.train.name;
  out["parameters"] = plan.parameters;
  for (const ParameterGroup& g : plan.groups) out["parameter_groups"][g.name] = g.count;
  out["mesh"] = {{"dp", plan.replicas}, {"pp", plan.stages}, {"tp", plan.shards}, {"zero", config.parallel.zero}};
  out["pipeline"] = {{"schedule", name_of(config.parallel.stage_schedule())},
                     {"chunks", config.parallel.stage_chunks()},
                     {"microbatches", plan.microbatches},
                     {"bubble", plan.bubble}};
  const auto bytes_of_plan = [](const Plan& p) {
    Json bytes;
    for (const NamedBytes& a : arenas_of(p)) bytes[a.name] = a.bytes;
    bytes["total"] = p.sizes.total();
    bytes["device"] = p.device_bytes();
    bytes["pinned_host"] = p.pinned;
    bytes["checkpoint_copy"] = p.copy;
    bytes["checkpoints_in_memory"] = p.in_memory;
    return bytes;
  };
  out["bytes"] = bytes_of_plan(plan);
  for (const Plan& stage : stages)
    out["stages"].push_back({{"stage", stage.stage},
                             {"in_flight", stage.in_flight},
                             {"flops_per_step", stage.model_flops()},
                             {"bytes", bytes_of_plan(stage)}});
  out["tokens_per_step"] = plan.tokens;
  out["flops_per_step"] = {
      {"products", plan.product_flops}, {"causal_attention", plan.attention_flops}, {"model", plan.model_flops()}};
  for (const auto& [name, count] : plan.step)
    out["ops"][name] = {{"calls", count.calls}, {"bytes", count.bytes}, {"flops", count.flops}};
  for (const auto& [name, count] : plan.traffic) out["traffic"][name] = {{"calls", count.calls}, {"sent", count.bytes}};
  return out.dump({.indent = 2});
}

}  // namespace trireme
