// Formats a plan as a table for people and as JSON for programs.
#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/number_format.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

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
          {"temporaries", s.temporaries, "peak of one pass or step"}};
}

std::string row(const char* name, const std::string& value, const std::string& what) {
  char line[200];
  std::snprintf(line, sizeof line, "  %-24s %12s  %s\n", name, value.c_str(), what.c_str());
  return line;
}

const Plan& largest(const std::vector<Plan>& stages) {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const Plan& a, const Plan& b) { return a.device_bytes() < b.device_bytes(); });
}

double balance_of(const std::vector<Plan>& stages) {
  double sum = 0, most = 0;
  for (const Plan& stage : stages) {
    double flops = 0;  // with those of recomputation
    for (const auto& [op, count] : stage.step) flops += count.flops;
    sum += flops, most = std::max(most, flops);
  }
  return sum / (most * static_cast<double>(stages.size()));
}

std::string mesh_lines(const RunConfig& config, const std::vector<Plan>& stages) {
  const Plan& plan = largest(stages);
  std::string out = "\nMesh: ";
  for (const MeshAxis& axis : plan.axes) out += axis.name + " " + std::to_string(axis.size) + ", ";
  out += "ZeRO " + std::to_string(config.parallel.zero);
  if (plan.copies > 1 && plan.copies < plan.replicas) out += ", " + std::to_string(plan.copies) + " copies of the state";
  out += "\n";
  out += row("microbatches", std::to_string(plan.microbatches), "per replica and step");
  out += row("peers", std::to_string(plan.peers), "ranks that one exchanges messages with, at most");
  if (plan.stages == 1) return out;
  out += row("schedule", std::string(name_of(config.parallel.schedule)),
             std::to_string(config.parallel.stage_chunks()) + " model chunks per stage");
  out += row("bubble", fixed(100 * plan.bubble, 1) + " %", "idle time of a stage relative to its work");
  out += row("balance", fixed(100 * balance_of(stages), 1) + " %", "the mean of the stages' work over that of the largest");
  for (const Plan& stage : stages)
    out +=
        row(("stage " + std::to_string(stage.stage)).c_str(), human_bytes(static_cast<double>(stage.device_bytes())),
            std::to_string(stage.in_flight) + " chunks' activations in flight, " + human_si(stage.model_flops()) + "FLOP per step");
  return out;
}

}  // namespace

std::string plan_table(const RunConfig& config, const std::vector<Plan>& stages, const CheckpointSize& checkpoint) {
  const Plan& plan = largest(stages);
  std::string out = "Model: " + std::string(name_of(config.model.family)) + ", " + std::to_string(config.model.layers) +
                    " layers, width " + std::to_string(config.model.width) + ", context " + std::to_string(config.model.context) +
                    "\n";
  for (const ParameterGroup& g : plan.groups)
    out += row(g.name.c_str(), human_count(static_cast<double>(g.count)),
               fixed(100.0 * static_cast<double>(g.count) / static_cast<double>(plan.parameters), 1) + " %");
  out += row("parameters", human_count(static_cast<double>(plan.parameters)), std::to_string(plan.parameters));
  if (std::ranges::any_of(plan.axes, [](const MeshAxis& axis) { return axis.size > 1; })) out += mesh_lines(config, stages);
  out += "\nMemory per rank" + (plan.stages > 1 ? " of stage " + std::to_string(plan.stage) : "") + ", " +
         std::string(name_of(config.kernels.dtype)) + ", microbatch " + std::to_string(config.microbatch_rows(plan.replicas)) +
         " x " + std::to_string(config.model.context) + "\n";
  for (const NamedBytes& a : arenas_of(plan)) out += row(a.name, human_bytes(static_cast<double>(a.bytes)), a.what);
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  out += row(plan.pinned > 0 ? "total on the GPU" : "total", bytes(plan.device_bytes()),
             std::to_string(plan.device_bytes()) + " bytes");
  if (plan.pinned > 0) out += row("total pinned on the host", bytes(plan.pinned), std::to_string(plan.pinned) + " bytes");
  if (plan.copy > 0) out += row("copy for checkpoints", bytes(plan.copy), "host memory; none with checkpoint.async: false");
  if (plan.in_memory > 0)
    out += row("checkpoints in memory", bytes(plan.in_memory),
               "peak of host memory for checkpoint.memory_every; twice on several nodes");
  out +=
      row("checkpoint", bytes(checkpoint.bytes),
          human_count(static_cast<double>(checkpoint.files)) + (checkpoint.files == 1 ? " file, " : " files, ") +
              human_count(static_cast<double>(checkpoint.pieces)) + " pieces, a manifest of " + bytes(checkpoint.manifest_bytes()));
  out += "\nOne step: " + std::to_string(plan.tokens) + " tokens; per rank " + human_si(plan.model_flops()) + "FLOP (products " +
         human_si(plan.product_flops) + ", causal attention " + human_si(plan.attention_flops) + ")\n";
  for (const auto& [name, count] : plan.step)
    out += row(name.c_str(), std::to_string(count.calls) + " calls",
               human_bytes(count.bytes) + (count.flops > 0 ? ", " + human_si(count.flops) + "FLOP" : ""));
  const std::string after = config.parallel.apart_after > 0 ? " after step " + std::to_string(config.parallel.apart_after) : "";
  if (!plan.traffic.empty()) out += "\nTraffic per rank in one step" + after + "\n";
  const auto list = [&](const Tally& traffic) {
    for (const auto& [name, count] : traffic)
      out += row(name.c_str(), std::to_string(count.calls) + " calls", human_bytes(count.bytes) + " sent");
  };
  list(plan.traffic);
  if (!plan.outer_traffic.empty())
    out += "\nAnd in each outer step, once in " + std::to_string(config.parallel.local_steps) + " steps\n";
  list(plan.outer_traffic);
  return out;
}

Json model_json(const ModelConfig& model) {
  return {{"family", name_of(model.family)}, {"layers", model.layers},       {"width", model.width}, {"heads", model.heads},
          {"kv_heads", model.kv_heads},      {"head_size", model.head_size}, {"ffn", model.ffn},     {"vocab", model.vocab},
          {"context", model.context},        {"tied", model.tied},           {"theta", model.theta}, {"qk_norm", model.qk_norm}};
}

Json plan_json(const RunConfig& config, const std::vector<Plan>& stages, const CheckpointSize& checkpoint) {
  const Plan& plan = largest(stages);
  Json out;
  out["name"] = config.train.name;
  out["model"] = model_json(config.model);
  out["parameters"] = plan.parameters;
  for (const ParameterGroup& g : plan.groups) out["parameter_groups"][g.name] = g.count;
  for (const MeshAxis& axis : plan.axes) out["mesh"][axis.name] = axis.size;
  out["mesh"]["zero"] = config.parallel.zero;
  out["mesh"]["copies"] = plan.copies;
  out["mesh"]["peers"] = plan.peers;
  out["pipeline"] = {{"schedule", name_of(config.parallel.stage_schedule())},
                     {"chunks", config.parallel.stage_chunks()},
                     {"microbatches", plan.microbatches},
                     {"bubble", plan.bubble},
                     {"balance", balance_of(stages)}};
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
  out["checkpoint"] = {{"bytes", checkpoint.bytes},
                       {"files", checkpoint.files},
                       {"tensors", checkpoint.tensors},
                       {"pieces", checkpoint.pieces},
                       {"manifest_bytes", checkpoint.manifest_bytes()}};
  out["tokens_per_step"] = plan.tokens;
  out["microbatch"] = config.microbatch_rows(plan.replicas);
  out["flops_per_step"] = {{"products", plan.product_flops},
                           {"fp8_products", plan.fp8_product_flops()},
                           {"causal_attention", plan.attention_flops},
                           {"model", plan.model_flops()}};
  for (const auto& [name, count] : plan.step)
    out["ops"][name] = {{"calls", count.calls}, {"bytes", count.bytes}, {"flops", count.flops}};
  for (const auto& [key, traffic] : {std::pair("traffic", &plan.traffic), std::pair("outer_traffic", &plan.outer_traffic)})
    for (const auto& [name, count] : *traffic) out[key][name] = {{"calls", count.calls}, {"sent_bytes", count.bytes}};
  return out;
}

}  // namespace trireme
