#include "train/plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"
#include "train/human.h"
#include "train/step.h"

namespace trireme {
namespace {

// "layers.3.attention.out" -> "attention": the component before the last dot; every norm is one group.
std::string group_of(const std::string& weight) {
  const std::string path = weight.substr(0, weight.rfind('.'));
  const std::string part = path.substr(path.rfind('.') + 1);
  return part.ends_with("norm") ? "norms" : part;
}

std::vector<ParameterGroup> group(const Stage& stage) {
  std::vector<ParameterGroup> groups;
  for (const Parameter& parameter : stage.parameters()) {
    const std::string name = group_of(parameter.spec.name);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) { return g.name == name; });
    if (at == groups.end()) at = groups.insert(groups.end(), {.name = name});
    at->count += parameter.spec.size();
  }
  return groups;
}

// Forward, dx and dw of a weight [out, in] for `rows` rows, `count` times.
void add_products(std::vector<ProductShape>& products, int64_t rows, int64_t out, int64_t in, int64_t count) {
  const ProductShape three[] = {{.m = rows, .n = out, .k = in, .transpose_b = true, .count = count},
                                {.m = rows, .n = in, .k = out, .count = count},
                                {.m = out, .n = in, .k = rows, .transpose_a = true, .accumulate = true, .count = count}};
  for (const ProductShape& p : three) {
    const auto same = [&](const ProductShape& q) {
      return p.m == q.m && p.n == q.n && p.k == q.k && p.transpose_a == q.transpose_a && p.transpose_b == q.transpose_b;
    };
    const auto at = std::find_if(products.begin(), products.end(), same);
    if (at == products.end())
      products.push_back(p);
    else
      at->count += count;
  }
}

std::vector<ProductShape> products_of(const RunConfig& config, const Stage& stage, int64_t replicas) {
  std::vector<ProductShape> products;
  const int64_t rows = stage.shape().rows * stage.shape().context, passes = config.train.batch / replicas / stage.shape().rows;
  for (const Parameter& p : stage.parameters())
    if (p.spec.shape.size() == 2 && p.spec.name.starts_with("layers."))
      add_products(products, rows, p.spec.shape[0], p.spec.shape[1], passes);
  const int64_t chunk = head_chunk_rows(rows, config.model.vocab);
  add_products(products, chunk, config.model.vocab, config.model.width, rows / chunk * passes);
  if (rows % chunk != 0) add_products(products, rows % chunk, config.model.vocab, config.model.width, passes);
  return products;
}

// The ops of a step of this many microbatches.
Tally walk(Run& run, int64_t microbatches) {
  const int64_t rows = microbatches * run.stage.shape().rows, context = run.stage.shape().context;
  const Tensor ids(nullptr, Dtype::i32, Place::none, {rows, context});
  run.device.tally().clear();
  run.device.comm_tally().clear();
  train_step(run, {.tokens = ids, .targets = ids, .positions = ids, .document_start = ids, .valid = rows * context}, 0);
  return run.device.tally();
}

struct NamedBytes {
  const char* name;
  int64_t bytes;
  const char* what;
};

std::vector<NamedBytes> arenas_of(const ArenaSizes& s) {
  return {{"weights", s.weights, "the step's weights"},
          {"gradients", s.gradients, "f32"},
          {"optimizer", s.optimizer, "moments and masters, f32"},
          {"activations", s.activations, "saved for backward"},
          {"temporaries", s.temporaries, "of a pass, at most"}};
}

std::string row(const char* name, const std::string& value, const std::string& what) {
  char line[200];
  std::snprintf(line, sizeof line, "  %-24s %12s  %s\n", name, value.c_str(), what.c_str());
  return line;
}

}  // namespace

Plan make_plan(const RunConfig& config, const Mesh& mesh) {
  Device device(Place::none);
  Run run(config, mesh, device, {});
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const int64_t microbatches = config.train.batch / mesh.replicas() / run.stage.shape().rows;

  Plan plan;
  plan.step = walk(run, 1);
  plan.traffic = device.comm_tally();
  plan.products = products_of(config, run.stage, mesh.replicas());
  // Every microbatch does the same: what the second one adds, the others add too.
  if (microbatches > 1)
    for (const auto& [name, two] : walk(run, 2)) {
      OpCount& count = plan.step[name];
      const auto others = static_cast<double>(microbatches - 1);
      count.flops += others * (two.flops - count.flops);
      count.bytes += others * (two.bytes - count.bytes);
      count.calls += (microbatches - 1) * (two.calls - count.calls);
    }
  plan.sizes = run.arenas.peaks();
  plan.groups = group(run.stage);
  for (const ParameterGroup& g : plan.groups) plan.parameters += g.count;
  plan.replicas = mesh.replicas();
  plan.tokens = config.train.batch * config.model.context;
  plan.product_flops = plan.step[Matmul::name].flops;
  plan.attention_flops = 3 * plan.step[AttentionForward::name].flops;
  return plan;
}

void check_mesh(const RunConfig& config, int64_t ranks) {
  std::string problems;
  config.check_replicas(mesh_sizes(ranks, config.parallel).dp, [&](const std::string& key, const std::string& problem) {
    problems += (problems.empty() ? "" : "\n") + key + ": " + problem + ", on " + std::to_string(ranks) + " ranks";
  });
  if (!problems.empty()) throw ConfigError(problems);
}

std::string plan_table(const RunConfig& config, const Plan& plan) {
  std::string out = "Model: " + std::string(name_of(config.model.family)) + ", " + std::to_string(config.model.layers) +
                    " layers, width " + std::to_string(config.model.width) + ", context " + std::to_string(config.model.context) +
                    "\n";
  for (const ParameterGroup& g : plan.groups)
    out += row(g.name.c_str(), human_count(static_cast<double>(g.count)),
               fixed(100.0 * static_cast<double>(g.count) / static_cast<double>(plan.parameters), 1) + " %");
  out += row("parameters", human_count(static_cast<double>(plan.parameters)), std::to_string(plan.parameters));
  out += "\nMemory of a rank, " + std::string(name_of(config.kernels.dtype)) + ", microbatch " +
         std::to_string(config.microbatch_rows(plan.replicas)) + " x " + std::to_string(config.model.context) + "\n";
  for (const NamedBytes& a : arenas_of(plan.sizes)) out += row(a.name, human_bytes(static_cast<double>(a.bytes)), a.what);
  out += row("total", human_bytes(static_cast<double>(plan.sizes.total())), std::to_string(plan.sizes.total()) + " bytes");
  out += "\nOne step: " + std::to_string(plan.tokens) + " tokens, a rank " + human_si(plan.model_flops()) + "FLOP (products " +
         human_si(plan.product_flops) + ", causal attention " + human_si(plan.attention_flops) + ")\n";
  for (const auto& [name, count] : plan.step)
    out += row(name.c_str(), std::to_string(count.calls) + " calls",
               human_bytes(count.bytes) + (count.flops > 0 ? ", " + human_si(count.flops) + "FLOP" : ""));
  if (!plan.traffic.empty()) out += "\nTraffic of a rank in one step, " + std::to_string(plan.replicas) + " replicas\n";
  for (const auto& [name, count] : plan.traffic)
    out += row(name.c_str(), std::to_string(count.calls) + " calls", human_bytes(count.bytes) + " sent");
  return out;
}

std::string plan_json(const RunConfig& config, const Plan& plan) {
  nlohmann::ordered_json out;
  out["name"] = config.train.name;
  out["parameters"] = plan.parameters;
  for (const ParameterGroup& g : plan.groups) out["parameter_groups"][g.name] = g.count;
  for (const NamedBytes& a : arenas_of(plan.sizes)) out["bytes"][a.name] = a.bytes;
  out["bytes"]["total"] = plan.sizes.total();
  out["tokens_per_step"] = plan.tokens;
  out["flops_per_step"] = {
      {"products", plan.product_flops}, {"causal_attention", plan.attention_flops}, {"model", plan.model_flops()}};
  for (const auto& [name, count] : plan.step)
    out["ops"][name] = {{"calls", count.calls}, {"bytes", count.bytes}, {"flops", count.flops}};
  for (const auto& [name, count] : plan.traffic) out["traffic"][name] = {{"calls", count.calls}, {"sent", count.bytes}};
  return out.dump(2);
}

}  // namespace trireme
