// trireme bench step: times a training step op by op, against the floor of this machine's rates, measured in the same run.
#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/number_format.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/ops/matmul.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/run/device_choice.h"
#include "train/run/kernel_choices.h"
#include "train/step/plan.h"
#include "train/step/step.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct BenchStepOptions {
  static constexpr auto name = "bench step";
  static constexpr auto about = "Time a training step of a config, op by op, against its floor";
  std::string config, json;
  double seconds = 8;
  std::vector<std::string> set;
  void visit(Options& o) {
    o("config", config, "YAML file").required();
    o("--seconds", seconds, "Time for steps, at most; three to fifty are timed. 0: three, and the rate of copies only roughly",
      at_least(0));
    o.json(json);
    o.set(set);
  }
};

struct Measured {
  Ceilings best;
  double attention;                      // GFLOP/s: rate of attention's products, which are never 8-bit
  std::vector<double> times;             // of steps, seconds
  Tally ops;                             // of one step, on average
  std::vector<PartClock::Part> parts{};  // of one step, on average; none on a GPU
  double step() const { return upper_median(times); }
  // Least time of an op: its FLOPs at the rate of products, or its bytes at the rate of a copy.
  double floor(const std::string& name, const OpCount& op) const {
    if (op.flops == 0) return op.bytes / best.copy / 1e9;
    return op.flops / (name == Matmul::name ? best.products : attention) / 1e9;
  }
  double floor() const {
    double seconds = 0;
    for (const auto& [name, op] : ops) seconds += floor(name, op);
    return seconds;
  }
};

void add_parts(std::vector<PartClock::Part>& sums, std::span<const PartClock::Part> parts) {
  sums.resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) sums[i].name = parts[i].name, sums[i].seconds += parts[i].seconds;
}

// Times steps, with one in flight as in training; then a few op by op, which a clock around each op slows down.
Measured measure_steps(TrainState& run, const Batch& batch, Measured m, double seconds) {
  int64_t step = run.config.parallel.apart_after;
  begin_step(run, batch, step++);
  run.device.freeze();
  const auto next = [&] {
    run.device.clock().restart();
    begin_step(run, batch, step);
    end_step(run, step++ - 1);
    return Clock::now();
  };
  next();
  auto last = next();
  for (const auto begin = last; m.times.size() < 3 || (seconds_since(begin) < seconds && m.times.size() < 50);) {
    const auto now = next();
    m.times.push_back(std::chrono::duration<double>(now - std::exchange(last, now)).count());
    if (run.device.place() == Place::cpu) add_parts(m.parts, run.device.clock().parts());
  }
  for (PartClock::Part& part : m.parts) part.seconds /= static_cast<double>(m.times.size());
  end_step(run, step - 1);
  constexpr int kRounds = 3;
  run.device.measure(true);
  for (int round = 0; round < kRounds; ++round) train_step(run, batch, step++);
  m.ops = run.device.tally();
  for (auto& [name, op] : m.ops) op.calls /= kRounds, op.flops /= kRounds, op.bytes /= kRounds, op.seconds /= kRounds;
  return m;
}

void say_ops(const Measured& m) {
  std::vector<std::pair<std::string, OpCount>> ops(m.ops.begin(), m.ops.end());
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  say(row("%-24s %7s %10s %7s %9s %9s  %s", "op", "calls", "ms", "share", "GB/s", "GFLOP/s", "time over floor"));
  double inside = 0;
  for (const auto& [name, op] : ops) {
    inside += op.seconds;
    say(row("%-24s %7ld %10.2f %6.1f%% %9.1f %9.0f  %.2f", name.c_str(), static_cast<long>(op.calls), op.seconds * 1e3,
            100 * op.seconds / m.step(), op.bytes / op.seconds / 1e9, op.flops / op.seconds / 1e9, op.seconds / m.floor(name, op)));
  }
  say(row("%-24s %7s %10.2f %6.1f%%", "between ops", "", (m.step() - inside) * 1e3, 100 * (1 - inside / m.step())));
}

void say_parts(const Measured& m) {
  std::string line;
  for (const PartClock::Part& part : m.parts)
    line += row("%s%s %.2f ms (%.1f %%)", line.empty() ? "parts of a step: " : ", ", part.name.data(), part.seconds * 1e3,
                100 * part.seconds / m.step());
  if (!line.empty()) say(line);
}

Json json_of(const RunConfig& config, const Plan& plan, const Device& device, const Measured& m) {
  Json out;
  out["name"] = config.train.name;
  out["device"] = device_name(device);
  out["dtype"] = name_of(config.kernels.dtype);
  out["matmul"] = name_of(config.kernels.matmul);
  out["parameters"] = plan.parameters;
  out["tokens"] = plan.tokens;
  out["batch"] = config.train.batch;
  out["microbatch"] = config.microbatch_rows(1);
  out["model"] = model_json(config.model);
  out["step_seconds"] = m.times;
  out["tokens_per_second"] = static_cast<double>(plan.tokens) / m.step();
  out["fp8_product_flops"] = plan.fp8_product_flops();
  out["model_flops"] = plan.model_flops();
  out["model_flops_per_second"] = plan.model_flops() / m.step();
  out["floor_seconds"] = m.floor();
  for (const PartClock::Part& part : m.parts) out["parts"][part.name.data()] = part.seconds;
  out.update(json_of(m.best));
  for (const auto& [name, op] : m.ops)
    out["ops"].push_back({{"name", name}, {"calls", op.calls}, {"seconds", op.seconds}, {"bytes", op.bytes}, {"flops", op.flops}});
  return out;
}

ExitCode run_bench_step(const BenchStepOptions& options) {
  RunConfig config = read_config(options.config, options.set, Purpose::plan);
  choose_device(config);
  JsonOutput json(options.json);
  Device device = open_device(config.kernels_of_run(), 1);
  const Mesh mesh(0, 1, config.parallel);
  const Plan plan = make_plan(config, mesh);
  const ChosenKernels kernels = choose_kernels(config, plan, mesh, device, {});
  const int64_t copied = options.seconds > 0 ? kCopiedBytes : kCopiedBytes / 16;
  const Ceilings best = measure_ceilings(device, dtype_of(config.kernels.dtype), plan.products, copied);
  introduce(device, best, "products of this step's shapes alone");
  std::vector<ProductShape> not_of_8_bits = plan.products;
  std::erase_if(not_of_8_bits, [](const ProductShape& p) { return p.bits8.has_value(); });
  const bool fp8 = not_of_8_bits.size() < plan.products.size();
  const double wide = fp8 ? product_rate(device, dtype_of(config.kernels.dtype), not_of_8_bits) : best.products;
  if (fp8) say(row("products in bf16 alone %.0f GFLOP/s", wide));
  for (const std::string& note : kernels.notes) say(note);

  TrainState run(config, mesh, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  const RandomBatch random(config);
  const double attention = wide > 0 ? wide : best.products;
  const Measured m =
      measure_steps(run, random.batch, {.best = best, .attention = attention, .times = {}, .ops = {}}, options.seconds);
  say_ops(m), say_parts(m);

  const OpCount adamw = m.ops.at(AdamW::name), norm = m.ops.at(SquaredNorm::name);
  const double seconds = m.step(), products = plan.product_flops / best.products / 1e9;
  const double optimizer = (adamw.bytes + norm.bytes) / best.copy / 1e9, floor = products + optimizer;
  say("");
  say(row("%s: %s parameters, %ld tokens a step in microbatches of %ld x %ld, %s", config.train.name.c_str(),
          human_count(static_cast<double>(plan.parameters)).c_str(), static_cast<long>(plan.tokens),
          static_cast<long>(run.stage.shape().rows), static_cast<long>(config.model.context),
          (std::string(name_of(config.kernels.dtype)) + (fp8 ? ", products with weights in fp8" : "")).c_str()));
  say(row("step          %10.1f ms, median of %zu (%.1f to %.1f)", seconds * 1e3, m.times.size(),
          *std::min_element(m.times.begin(), m.times.end()) * 1e3, *std::max_element(m.times.begin(), m.times.end()) * 1e3));
  say(row("floor         %10.1f ms: products %.1f + optimizer's bytes %.1f; every op at its best %.1f", floor * 1e3, products * 1e3,
          optimizer * 1e3, m.floor() * 1e3));
  say(row("time / floor  %10.2f", seconds / floor));
  if (best.instructions > 0) {
    const auto least = [&](double flops) { return flops / best.instructions / 1e9 + optimizer; };
    say(row("instructions  %10.2f is time / floor with products at their rate, a floor of %.1f ms; %.2f with causal attention too",
            seconds / least(plan.product_flops), least(plan.product_flops) * 1e3, seconds / least(plan.model_flops())));
  }
  say(row("tokens/s      %10.0f", static_cast<double>(plan.tokens) / seconds));
  say(row("products      %10.1f %% of the rate of products alone (product FLOPs / step time)", 100 * products / seconds));
  say(row("MFU           %10.1f %% of that rate: %sFLOP/s (products and causal attention, forward and twice that backward)",
          100 * plan.model_flops() / seconds / best.products / 1e9, human_si(plan.model_flops() / seconds).c_str()));
  say(row("AdamW         %10.1f %% of the copy bandwidth", 100 * adamw.bytes / adamw.seconds / best.copy / 1e9));
  Json found = json_of(config, plan, device, m);
  found["notes"] = kernels.notes;
  found["attention"] = device.attention();
  json.write(found);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> bench_step_command() { return make_command<BenchStepOptions>(run_bench_step); }

}  // namespace trireme
