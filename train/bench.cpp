// trireme bench kernels|step: time, rate, and the share of what this machine can do at best, measured in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/layernorm.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/swiglu.h"
#include "kernels/philox.h"
#include "train/commands.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/step.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class... Parts>
std::string row(const char* format, Parts... parts) {
  char line[240];
  std::snprintf(line, sizeof line, format, parts...);
  return line;
}

void introduce(const Device& device, double copy, double products, const char* of) {
  say(row("%s, %d threads, bf16 products: %s", device.cpu().name.c_str(), device.threads(), device.cpu().bf16_path().c_str()));
  say(row("copy %.1f GB/s (read and written), %s %.0f GFLOP/s, both measured now", copy, of, products));
  say("");
}

// One op on memory of its own, with what it moves and computes.
class KernelBench {
 public:
  KernelBench(Device& device, double copy, double products, std::string only)
      : device_(device), copy_(copy), products_(products), only_(std::move(only)), arena_(device, int64_t{3} << 30, "bench") {
    say(row("%-24s %10s %10s %10s  %s", "op", "ms", "GB/s", "GFLOP/s", "share of the best"));
  }

  Tensor f32(std::initializer_list<int64_t> shape) { return random(arena_.take(Dtype::f32, shape)); }
  Tensor bf16(std::initializer_list<int64_t> shape) {
    Tensor t = arena_.take(Dtype::bf16, shape);
    const Frame frame(arena_);
    Tensor wide = arena_.take(Dtype::f32, {t.size()});
    run(device_.compute(), Cast{.y = t, .x = random(wide)});
    return t;
  }
  Tensor ids(std::initializer_list<int64_t> shape, int64_t below) {
    Tensor t = arena_.take(Dtype::i32, shape);
    for (int64_t i = 0; i < t.size(); ++i)
      t.as<int32_t>()[i] = static_cast<int32_t>(philox64(3, static_cast<uint64_t>(i)) % static_cast<uint64_t>(below));
    return t;
  }

  void fill(Tensor t, float value) { run(device_.compute(), Fill{.x = t, .value = value}); }

  // The median of at least five runs and 0.2 s.
  template <class Op>
  void operator()(const Op& op) {
    if (std::string(Op::name).find(only_) == std::string::npos) return;
    device_.measure(true);
    Stream& compute = device_.compute();
    run(compute, op);
    std::vector<double> times;
    for (const auto begin = Clock::now(); times.size() < 5 || seconds_since(begin) < 0.2;) {
      const auto start = Clock::now();
      run(compute, op);
      times.push_back(seconds_since(start));
    }
    const OpCount count = device_.tally()[Op::name];
    const double calls = static_cast<double>(count.calls), time = median(times);
    const double bytes = count.bytes / calls / time / 1e9, flops = count.flops / calls / time / 1e9;
    device_.measure(false);
    const std::string share =
        flops > 0 ? row("%.0f %% of products", 100 * flops / products_) : row("%.0f %% of copy", 100 * bytes / copy_);
    say(row("%-24s %10.3f %10.1f %10.0f  %s", Op::name, time * 1e3, bytes, flops, share.c_str()));
  }

 private:
  Tensor random(Tensor t) {
    run(device_.compute(), FillNormal{.x = t, .key = static_cast<uint64_t>(arena_.used())});
    return t;
  }

  Device& device_;
  double copy_, products_;
  std::string only_;
  Arena arena_;
};

// GPT-2 124M's shapes, N = 2048 rows, bf16; Llama's ops at the same sizes.
void bench_all(KernelBench& b) {
  constexpr int64_t B = 8, T = 256, N = B * T, C = 768, H = 12, D = 64, F = 3072, V = 50257, chunk = 512;
  const Tensor x = b.bf16({N, C}), y = b.bf16({N, C}), residual = b.bf16({N, C}), sum = b.bf16({N, C}), gain = b.bf16({C}),
               bias = b.bf16({C});
  const Tensor mean = b.f32({N}), inverse = b.f32({N}), dgain = b.f32({C}), dbias = b.f32({C});
  b(RmsNormForward{.y = y, .inv_rms = inverse, .sum = sum, .x = x, .gain = gain, .residual = residual});
  b(RmsNormBackward{.dx = sum, .dgain = dgain, .dy = y, .x = x, .gain = gain, .inv_rms = inverse, .dsum = residual});
  b(LayerNormForward{
      .y = y, .mean = mean, .inv_std = inverse, .sum = sum, .x = x, .gain = gain, .bias = bias, .residual = residual});
  b(LayerNormBackward{.dx = sum,
                      .dgain = dgain,
                      .dbias = dbias,
                      .dy = y,
                      .x = x,
                      .gain = gain,
                      .mean = mean,
                      .inv_std = inverse,
                      .dsum = residual});

  const Tensor up = b.bf16({F, C}), dup = b.f32({F, C}), hidden = b.bf16({N, F}), hidden2 = b.bf16({N, F}),
               gated = b.bf16({N, 2 * F});
  b(Matmul{.c = hidden, .a = x, .b = up, .transpose_b = true});
  b(Matmul{.c = y, .a = hidden, .b = up});
  b(Matmul{.c = dup, .a = hidden, .b = x, .transpose_a = true, .accumulate = true});
  b(GeluForward{.y = hidden2, .x = hidden});
  b(GeluBackward{.dx = hidden2, .dy = hidden2, .x = hidden});
  b(SwiGluForward{.y = hidden, .x = gated});
  b(SwiGluBackward{.dx = gated, .dy = hidden, .x = gated});

  const Tensor table = b.f32({T, D / 2, 2}), positions = b.ids({N}, T), qkv = b.bf16({N, 3 * C});
  const Tensor q = b.bf16({N, H, D}), k = b.bf16({N, H, D}), v = b.bf16({N, H, D}), dq = b.bf16({N, H, D}), dk = b.bf16({N, H, D}),
               dv = b.bf16({N, H, D});
  b(SplitHeadsForward{.q = q, .k = k, .v = v, .qkv = qkv, .positions = positions, .table = table});
  b(SplitHeadsBackward{.dqkv = qkv, .dq = q, .dk = k, .dv = v, .positions = positions, .table = table});
  const auto split = [&](const Tensor& t) { return t.view({B, T, H, D}); };
  const Tensor lse = b.f32({B, H, T}), out = b.bf16({N, H, D});
  b(AttentionForward{.out = split(out), .lse = lse, .q = split(q), .k = split(k), .v = split(v), .scale = 0.125f});
  b(AttentionBackward{.dq = split(dq),
                      .dk = split(dk),
                      .dv = split(dv),
                      .dout = split(out),
                      .out = split(out),
                      .lse = lse,
                      .q = split(q),
                      .k = split(k),
                      .v = split(v),
                      .scale = 0.125f});

  const Tensor words = b.bf16({V, C}), dwords = b.f32({V, C}), tokens = b.ids({N}, V);
  b(EmbeddingForward{.x = x, .tokens = tokens, .table = words});
  b(EmbeddingBackward{.dtable = dwords, .dx = x, .tokens = tokens});
  const Tensor logits = b.f32({chunk, V}), dlogits = b.bf16({chunk, V}), loss = b.f32({chunk}), normaliser = b.f32({chunk});
  const Tensor targets = tokens.slice(0, chunk);
  b(CrossEntropyForward{.loss = loss, .lse = normaliser, .logits = logits, .targets = targets});
  b(CrossEntropyBackward{.dlogits = dlogits, .logits = logits, .lse = normaliser, .targets = targets});

  const int64_t n = V * C;
  const Tensor master = b.f32({n}), m = b.f32({n}), second = b.f32({n}), grad = b.f32({n}), norm = b.f32({1});
  b(SquaredNorm{.total = norm, .x = grad});
  b.fill(norm, 1), b.fill(second, 1e-4f);
  b(AdamW{.weight = words.view({n}),
          .master = master,
          .m = m,
          .v = second,
          .grad = grad,
          .squared_norm = norm,
          .lr = 1e-3f,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .eps = 1e-8f,
          .decay = 0.1f,
          .clip = 1,
          .step = 1});
}

}  // namespace

ExitCode run_bench_kernels(const BenchOptions& options) {
  Device device = open_device({}, 1);
  const double copy = copy_bandwidth(device);
  const std::vector<ProductShape> shapes{{.m = 2048, .n = 3072, .k = 768, .transpose_b = true},
                                         {.m = 2048, .n = 768, .k = 3072},
                                         {.m = 3072, .n = 768, .k = 2048, .transpose_a = true, .accumulate = true}};
  const double products = product_rate(device, Dtype::bf16, shapes);
  introduce(device, copy, products, "bf16 products of the MLP's shapes");
  KernelBench bench(device, copy, products, options.only);
  bench_all(bench);
  return ExitCode::done;
}

namespace {

// A batch of random tokens.
struct RandomBatch {
  std::vector<int32_t> ids[4];
  Batch batch;

  explicit RandomBatch(const RunConfig& config) {
    const int64_t rows = config.train.batch, context = config.model.context;
    for (auto& field : ids) field.assign(static_cast<size_t>(rows * context), 0);
    for (size_t i = 0; i < ids[0].size(); ++i) {
      ids[0][i] = static_cast<int32_t>(philox64(1, i) % static_cast<uint64_t>(config.model.vocab));
      ids[1][i] = static_cast<int32_t>(philox64(2, i) % static_cast<uint64_t>(config.model.vocab));
      ids[2][i] = static_cast<int32_t>(static_cast<int64_t>(i) % context);
    }
    const auto tensor = [&](std::vector<int32_t>& field) { return Tensor(field.data(), Dtype::i32, Place::cpu, {rows, context}); };
    batch = {.tokens = tensor(ids[0]),
             .targets = tensor(ids[1]),
             .positions = tensor(ids[2]),
             .document_start = tensor(ids[3]),
             .valid = rows * context};
  }
};

// What a step of this plan cannot do faster on a machine with these rates.
struct Floor {
  double products, optimizer;  // seconds
  double total() const { return products + optimizer; }
};

void tell_ops(const Tally& tally, double steps, double step_seconds, double copy, double products) {
  std::vector<std::pair<std::string, OpCount>> ops(tally.begin(), tally.end());
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  say(row("%-24s %7s %10s %7s %9s %9s  %s", "op", "calls", "ms", "share", "GB/s", "GFLOP/s", "time over floor"));
  double inside = 0;
  for (const auto& [name, op] : ops) {
    const double floor = op.flops > 0 ? op.flops / products / 1e9 : op.bytes / copy / 1e9;
    inside += op.seconds / steps;
    say(row("%-24s %7.0f %10.2f %6.1f%% %9.1f %9.0f  %.2f", name.c_str(), static_cast<double>(op.calls) / steps,
            op.seconds / steps * 1e3, 100 * op.seconds / steps / step_seconds, op.bytes / op.seconds / 1e9,
            op.flops / op.seconds / 1e9, op.seconds / floor));
  }
  say(row("%-24s %7s %10.2f %6.1f%%", "between ops", "", (step_seconds - inside) * 1e3, 100 * (1 - inside / step_seconds)));
}

}  // namespace

ExitCode run_bench_step(const BenchOptions& options) {
  const RunConfig config = read_config(options.config, options.set, Purpose::plan);
  if (config.kernels.device == DeviceChoice::cuda)
    throw ConfigError("kernels.device = cuda: trireme bench measures the CPU alone yet; set kernels.device to cpu");
  Device device = open_device(config.kernels, 1);
  const Mesh mesh(0, 1, config.parallel);
  const Plan plan = make_plan(config, mesh);
  const double copy = copy_bandwidth(device);
  const double products = product_rate(device, dtype_of(config.kernels.dtype), plan.products);
  introduce(device, copy, products, "products of this step's shapes alone");

  Run run(config, mesh, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  RandomBatch random(config);
  train_step(run, random.batch, 0);
  device.freeze();
  device.measure(true);
  std::vector<double> times;
  for (const auto begin = Clock::now(); times.size() < 3 || (seconds_since(begin) < 10 && times.size() < 50);) {
    const auto start = Clock::now();
    train_step(run, random.batch, static_cast<int64_t>(times.size()) + 1);
    times.push_back(seconds_since(start));
  }
  const Tally tally = device.tally();
  const double steps = static_cast<double>(times.size()), seconds = median(times);
  double mean = 0;
  for (const double time : times) mean += time / steps;
  tell_ops(tally, steps, mean, copy, products);

  const OpCount adamw = tally.at(AdamW::name), norm = tally.at(SquaredNorm::name);
  const Floor floor{.products = plan.product_flops / products / 1e9, .optimizer = (adamw.bytes + norm.bytes) / steps / copy / 1e9};
  say("");
  say(row("%s: %s parameters, %ld tokens a step in microbatches of %ld x %ld, %s", config.train.name.c_str(),
          human_count(static_cast<double>(plan.parameters)).c_str(), static_cast<long>(plan.tokens),
          static_cast<long>(run.stage.shape().rows), static_cast<long>(config.model.context),
          std::string(name_of(config.kernels.dtype)).c_str()));
  say(row("step          %10.1f ms, median of %zu (%.1f to %.1f)", seconds * 1e3, times.size(),
          *std::min_element(times.begin(), times.end()) * 1e3, *std::max_element(times.begin(), times.end()) * 1e3));
  say(row("floor         %10.1f ms: products %.1f + optimizer's bytes %.1f", floor.total() * 1e3, floor.products * 1e3,
          floor.optimizer * 1e3));
  say(row("time / floor  %10.2f", seconds / floor.total()));
  say(row("tokens/s      %10.0f", static_cast<double>(plan.tokens) / seconds));
  say(row("products      %10.1f %% of the rate of products alone (product FLOPs / step time)", 100 * floor.products / seconds));
  say(row("MFU           %10.1f %% (products and causal attention, forward and twice that backward)",
          100 * plan.model_flops() / seconds / products / 1e9));
  say(row("AdamW         %10.1f %% of the copy bandwidth", 100 * adamw.bytes / adamw.seconds / copy / 1e9));
  return ExitCode::done;
}

}  // namespace trireme
