// trireme bench kernels: times each op, against limits of this machine measured in the same run.
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/philox.h"
#include "kernels/copy.h"
#include "kernels/memory.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/ops/layernorm.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/swiglu.h"
#include "kernels/ops/update_gate.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct BenchKernelsOptions {
  static constexpr auto name = "bench kernels";
  static constexpr auto about = "Time each op, against the measured rates of copies and products";
  std::string only, json;
  bool cuda = false;
  void visit(Options& o) {
    o("--only", only, "Part of the names of the ops to time; default: all ops");
    o("--cuda", cuda, "Time the kernels of the GPU; default: those of the CPU");
    o.json(json);
  }
};

// Runs ops on memory of its own, and keeps their times and rates.
class KernelBench {
 public:
  KernelBench(Device& device, const Ceilings& best, std::string only)
      : device_(device), best_(best), only_(std::move(only)), arena_(device, arena_bytes(device), "bench") {
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
    std::vector<int32_t> values(static_cast<size_t>(t.size()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(philox64(3, i) % static_cast<uint64_t>(below));
    copy(device_.compute(), t, Tensor(values.data(), Dtype::i32, Place::cpu, {t.size()}));
    device_.compute().finish();
    return t;
  }

  Tensor take(Dtype dtype, std::initializer_list<int64_t> shape) { return arena_.take(dtype, shape); }

  void fill(Tensor t, float value) { run(device_.compute(), Fill{.x = t, .value = value}); }
  template <class Op>
  void prepare(const Op& op) {
    run(device_.compute(), op);
  }

  // Times the op: the median of at least five runs and 0.2 s.
  template <class Op>
  void operator()(const Op& op) {
    if (std::string(Op::name).find(only_) == std::string::npos) return;
    Stream& compute = device_.compute();
    run(compute, op);
    compute.finish();
    std::vector<double> times;
    OpCount count;
    for (const auto begin = Clock::now(); times.size() < 5 || seconds_since(begin) < 0.2;) {
      device_.measure(true);
      run(compute, op);
      count = device_.tally()[Op::name];
      times.push_back(count.seconds);
    }
    device_.measure(false);
    const double time = upper_median(times), bytes = count.bytes / time / 1e9, flops = count.flops / time / 1e9;
    std::string share =
        flops > 0 ? row("%.0f %% of products", 100 * flops / best_.products) : row("%.0f %% of copy", 100 * bytes / best_.copy);
    if (flops > 0 && best_.instructions > 0) share += row(", %.0f %% of instructions", 100 * flops / best_.instructions);
    say(row("%-24s %10.3f %10.1f %10.0f  %s", Op::name, time * 1e3, bytes, flops, share.c_str()));
    found_.push_back({{"name", Op::name}, {"seconds", time}, {"bytes", count.bytes}, {"flops", count.flops}});
  }

  const Json& found() const { return found_; }

 private:
  static int64_t arena_bytes(const Device& device) { return int64_t{device.place() == Place::cuda ? 10 : 3} << 30; }
  Tensor random(Tensor t) {
    run(device_.compute(), FillNormal{.x = t, .key = static_cast<uint64_t>(arena_.used())});
    return t;
  }

  Device& device_;
  Ceilings best_;
  std::string only_;
  Arena arena_;
  Json found_ = Json::array();
};

// Sequences, tokens in each, and rows of logits: as many as a microbatch has. A GPU's caches hold none of its tensors.
struct BenchSize {
  int64_t B, T, chunk;
};
BenchSize size_for(const Device& device) {
  return device.place() == Place::cuda ? BenchSize{.B = 64, .T = 1024, .chunk = 4096} : BenchSize{.B = 8, .T = 256, .chunk = 512};
}

// All ops at GPT-2 124M's shapes, N = B T rows, bf16; Llama's ops at the same sizes. The values of tensors follow from the order
// in which they are taken.
struct BenchedOps : BenchSize {
  static constexpr int64_t C = 768, H = 12, D = 64, F = 3072, V = 50257;
  KernelBench& b;
  int64_t N = B * T;
  Tensor x = b.bf16({N, C}), y = b.bf16({N, C});  // [N, C]

  void norms() const;
  void products_and_activations() const;
  void attention() const;
  void embedding_and_loss(const Tensor& words) const;  // [V, C]
  void optimizer(const Tensor& words) const;           // [V, C]
};

void BenchedOps::norms() const {
  const Tensor residual = b.bf16({N, C}), sum = b.bf16({N, C}), gain = b.f32({C}), bias = b.f32({C});
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
}

void BenchedOps::products_and_activations() const {
  const Tensor up = b.bf16({F, C}), dup = b.f32({F, C}), hidden = b.bf16({N, F}), hidden2 = b.bf16({N, F}),
               gated = b.bf16({N, 2 * F});
  b(Matmul{.c = hidden, .a = x, .b = up, .transpose_b = true});
  b(Matmul{.c = y, .a = hidden, .b = up});
  b(Matmul{.c = dup, .a = hidden, .b = x, .transpose_a = true, .accumulate = true});
  const Tensor x8 = b.take(Dtype::e4m3, {N, C}), up8 = b.take(Dtype::e4m3, {F, C}), dy8 = b.take(Dtype::e5m2, {N, F}),
               dy8t = b.take(Dtype::e5m2, {F, N}), x8_scale = b.f32({1}), up8_scale = b.f32({1}), dy8_scale = b.f32({1});
  b(Quantize{.scale = x8_scale, .x = x, .y = x8});
  b(Quantize{.scale = dy8_scale, .x = hidden, .y = dy8, .transposed = dy8t});
  b.prepare(Quantize{.scale = up8_scale, .x = up, .y = up8});
  b(Matmul{.c = hidden, .a = x8, .b = up8, .a_scale = x8_scale, .b_scale = up8_scale, .transpose_b = true});
  b(GeluForward{.y = hidden2, .x = hidden});
  b(GeluBackward{.dx = hidden2, .dy = hidden2, .x = hidden});
  b(SwiGluForward{.y = hidden, .x = gated});
  b(SwiGluBackward{.dx = gated, .dy = hidden, .x = gated});
}

void BenchedOps::attention() const {
  const Tensor table = b.f32({T, D / 2, 2}), positions = b.ids({N}, T), qkv = b.bf16({N, 3 * C});
  const Tensor q = b.bf16({N, H, D}), k = b.bf16({N, H, D}), v = b.bf16({N, H, D}), dq = b.bf16({N, H, D}), dk = b.bf16({N, H, D}),
               dv = b.bf16({N, H, D});
  b(SplitHeadsForward{.q = q, .k = k, .v = v, .qkv = qkv, .positions = positions, .table = table});
  b(SplitHeadsBackward{.dqkv = qkv, .dq = q, .dk = k, .dv = v});
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
}

void BenchedOps::embedding_and_loss(const Tensor& words) const {
  const Tensor dwords = b.f32({V, C}), tokens = b.ids({N}, V);
  b(EmbeddingForward{.x = x, .tokens = tokens, .table = words});
  b(EmbeddingBackward{.dtable = dwords, .dx = x, .tokens = tokens});
  const Tensor logits = b.f32({chunk, V}), dlogits = b.bf16({chunk, V}), loss = b.f32({chunk}), normaliser = b.f32({chunk});
  const Tensor targets = tokens.slice(0, chunk);
  b(CrossEntropyForward{.loss = loss, .lse = normaliser, .logits = logits, .targets = targets});
  b(CrossEntropyBackward{.dlogits = dlogits, .logits = logits, .lse = normaliser, .targets = targets});
  b(CrossEntropyInPlace{.loss = loss, .logits = dlogits, .targets = targets});
}

void BenchedOps::optimizer(const Tensor& words) const {
  const int64_t n = V * C;
  const Tensor master = b.f32({n}), m = b.f32({n}), second = b.f32({n}), grad = b.f32({n}), norm = b.f32({SquaredSum::kSize});
  const Tensor norm_table = b.take(Dtype::i32, {1, SquaredNorm::kRow}), part_table = b.take(Dtype::i32, {1, AdamW::kRow}),
               schedule = b.f32({AdamWSchedule::kSize}), numbers = b.f32({StepNumbers::kSize}), gate = b.f32({Gate::kSize});
  const std::array xs{grad};
  const std::array parts{AdamWPart{.weight = words.view({n}), .master = master, .m = m, .v = second, .grad = grad, .decay = 0.1f}};
  b.prepare(SquaredNormTable{.table = norm_table, .xs = xs});
  b.prepare(AdamWTable{.table = part_table, .parts = parts});
  b.prepare(AdamWSchedule{.schedule = schedule, .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .step = 1});
  b(SquaredNorm{.total = norm, .xs = xs, .table = norm_table});
  b.fill(norm, 1), b.fill(second, 1e-4f);
  b.prepare(StepNumbers{.numbers = numbers, .step = 1});
  b.prepare(UpdateGate{.gate = gate, .numbers = numbers, .squared_norm = norm, .clip = 1});
  b(AdamW{.parts = parts, .table = part_table, .gate = gate, .schedule = schedule, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f});
}

void bench_all(KernelBench& b, const BenchSize& size) {
  const BenchedOps ops{size, b};
  ops.norms();
  ops.products_and_activations();
  ops.attention();
  const Tensor words = b.bf16({BenchedOps::V, BenchedOps::C});
  ops.embedding_and_loss(words);
  ops.optimizer(words);
}

ExitCode run_bench_kernels(const BenchKernelsOptions& options) {
  JsonOutput json(options.json);
  Device device = open_device({.device = options.cuda ? DeviceChoice::cuda : DeviceChoice::cpu}, 1);
  const BenchSize size = size_for(device);
  const int64_t rows = size.B * size.T;
  const Ceilings best = measure_ceilings(device, Dtype::bf16,
                                         {{.m = rows, .n = 3072, .k = 768, .transpose_b = true},
                                          {.m = rows, .n = 768, .k = 3072},
                                          {.m = 3072, .n = 768, .k = rows, .transpose_a = true, .accumulate = true}});
  introduce(device, best, "bf16 products of the MLP's shapes");
  KernelBench bench(device, best, options.only);
  bench_all(bench, size);
  Json all{{"device", device_name(device)}, {"ops", bench.found()}};
  all.update(json_of(best));
  json.write(all);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> bench_kernels_command() { return make_command<BenchKernelsOptions>(run_bench_kernels); }

}  // namespace trireme
