#include "kernels/tune/attention_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/clock.h"
#include "base/philox.h"
#include "kernels/copy.h"
#include "kernels/cuda_facts.h"
#include "kernels/ops/attention.h"
#include "kernels/tune/product_trial.h"

namespace trireme {
namespace {

// An attention of random numbers, runnable by either implementation.
class Trial {
 public:
  Trial(Device& device, const AttentionShape& shape, int64_t document)
      : device_(device), shape_(shape), before_(device.attention()), arena_(device, bytes(shape), "choice of attention's kernels") {
    const int64_t b = shape.rows, t = shape.tokens, h = shape.heads, k = shape.kv_heads, d = shape.head_size;
    for (Tensor* x : {&dout_, &out_}) *x = arena_.take(Dtype::bf16, {b, t, h, d});
    if (shape.together) {
      for (Tensor* x : {&qkv_, &dqkv_}) *x = arena_.take(Dtype::bf16, {b, t, (h + 2 * k) * d});
      const HeadViews in(qkv_, h, k, d), gradients(dqkv_, h, k, d);
      q_ = in.q, k_ = in.k, v_ = in.v, dq_ = gradients.q, dk_ = gradients.k, dv_ = gradients.v;
    } else {
      for (Tensor* x : {&q_, &dq_}) *x = arena_.take(Dtype::bf16, {b, t, h, d});
      for (Tensor* x : {&k_, &v_, &dk_, &dv_}) *x = arena_.take(Dtype::bf16, {b, t, k, d});
    }
    lse_ = arena_.take(Dtype::f32, {b, h, t});
    if (shape.documents) start_documents(document > 0 ? document : std::max<int64_t>(1, t / 4));
    uint64_t key = 1;
    for (const Tensor& x : shape.together ? std::vector{qkv_, dout_} : std::vector{q_, k_, v_, dout_})
      fill_random(device.compute(), arena_, x, 1, key++);
    attend(false);
  }
  ~Trial() { device_.attention() = before_; }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  void run(bool fused) { shape_.backward ? attend_backward(fused) : attend(fused); }
  void finish() { device_.compute().finish(); }

  // The op's outputs in f32.
  std::vector<std::vector<float>> results(bool fused) {
    run(fused);
    std::vector<std::vector<float>> all;
    const std::vector gradients = shape_.together ? std::vector{dqkv_} : std::vector{dq_, dk_, dv_};
    for (const Tensor& x : shape_.backward ? gradients : std::vector{out_, lse_}) all.push_back(read(x));
    return all;
  }

 private:
  static int64_t bytes(const AttentionShape& s) {
    return s.rows * s.tokens * (4 + 8 * (s.heads + s.kv_heads) * s.head_size + 4 * s.heads) + kRandomBytes + 13 * Arena::kAlign;
  }

  // Documents of 1 to 2 mean - 1 tokens.
  void start_documents(int64_t mean) {
    std::vector<int32_t> starts(static_cast<size_t>(shape_.rows * shape_.tokens));
    uint64_t number = 0;
    for (int64_t row = 0; row < shape_.rows; ++row)
      for (int64_t t = 0, start = 0, end = 0; t < shape_.tokens; ++t) {
        if (t == end) start = t, end = t + 1 + static_cast<int64_t>(philox64(1, number++) % static_cast<uint64_t>(2 * mean - 1));
        starts[static_cast<size_t>(row * shape_.tokens + t)] = static_cast<int32_t>(start);
      }
    start_ = arena_.take(Dtype::i32, {shape_.rows, shape_.tokens});
    copy(device_.compute(), start_, Tensor(starts.data(), Dtype::i32, Place::cpu, {shape_.rows, shape_.tokens}));
    finish();
  }

  void use(bool backward, bool fused) {
    AttentionShape shape = shape_;
    shape.backward = backward;
    device_.attention() = {{shape.words(), fused ? "cudnn" : "ours"}};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_size)); }
  void attend(bool fused) {
    use(false, fused);
    trireme::run(device_.compute(), AttentionForward{.out = out_,
                                                     .lse = lse_,
                                                     .q = q_,
                                                     .k = k_,
                                                     .v = v_,
                                                     .document_start = start_,
                                                     .qkv = qkv_,
                                                     .window = shape_.window,
                                                     .scale = scale()});
  }
  void attend_backward(bool fused) {
    use(true, fused);
    trireme::run(device_.compute(), AttentionBackward{.dq = dq_,
                                                      .dk = dk_,
                                                      .dv = dv_,
                                                      .dout = dout_,
                                                      .out = out_,
                                                      .lse = lse_,
                                                      .q = q_,
                                                      .k = k_,
                                                      .v = v_,
                                                      .document_start = start_,
                                                      .dqkv = dqkv_,
                                                      .qkv = qkv_,
                                                      .window = shape_.window,
                                                      .scale = scale()});
  }

  std::vector<float> read(const Tensor& x) {
    std::vector<std::byte> bytes(static_cast<size_t>(x.bytes()));
    copy(device_.compute(), Tensor(bytes.data(), x.dtype(), Place::cpu, {x.size()}), x.view({x.size()}));
    finish();
    std::vector<float> values(static_cast<size_t>(x.size()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = x.dtype() == Dtype::bf16 ? static_cast<float>(reinterpret_cast<const Bf16*>(bytes.data())[i])
                                           : reinterpret_cast<const float*>(bytes.data())[i];
    return values;
  }

  Device& device_;
  const AttentionShape shape_;
  const AttentionChoices before_;
  Arena arena_;
  Tensor q_, dout_, out_, dq_, k_, v_, dk_, dv_, qkv_, dqkv_, lse_, start_;
};

// Rounding to bf16 and another order of sums change a value by a few hundredths of the largest. A
// wrong mask, scale or head changes it by as much as the largest itself.
bool close(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return false;
    largest = std::max(largest, std::abs(b[i])), apart = std::max(apart, std::abs(a[i] - b[i]));
  }
  return apart <= 0.05f * largest;
}

std::string milliseconds(double seconds) {
  char line[40];
  std::snprintf(line, sizeof line, "%.3f ms", 1e3 * seconds);
  return line;
}

}  // namespace

double time_attention(Device& device, const AttentionShape& shape, bool fused, int64_t document) {
  Trial trial(device, shape, document);
  constexpr int kAhead = 10;  // enqueued at once, which hides the launch overhead
  const auto round = [&] {
    const auto begin = Clock::now();
    for (int i = 0; i < kAhead; ++i) trial.run(fused);
    trial.finish();
    return seconds_since(begin) / kAhead;
  };
  round();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) best = std::min(best, round());
  return best;
}

bool fused_agrees(Device& device, const AttentionShape& shape) {
  Trial trial(device, shape, 0);
  const auto ours = trial.results(false), once = trial.results(true);
  bool agrees = true;
  for (int i = 0; i < 3; ++i) agrees = agrees && trial.results(true) == once;
  for (size_t i = 0; i < ours.size(); ++i) agrees = agrees && close(once[i], ours[i]);
  return agrees;
}

ChosenAttention choose_attention(Device& device, AttentionKernels wanted, const std::vector<AttentionShape>& shapes,
                                 const AttentionTimer& time) {
  ChosenAttention chosen;
  const bool none = device.place() != Place::cuda || wanted == AttentionKernels::ours;
  if (none || (wanted == AttentionKernels::automatic && !fused_attention_facts().found)) return chosen;
  const auto choose = [&](const AttentionShape& shape, const char* kernels, const std::string& why) {
    chosen.choices[shape.words()] = kernels;
    chosen.reasons.push_back(shape.words() + ": " + kernels + ", " + why);
  };
  for (const AttentionShape& shape : shapes) {
    if (const std::string refusal = fused_refusal(shape); !refusal.empty()) {
      choose(shape, "ours", refusal);
    } else if (!fused_agrees(device, shape)) {
      choose(shape, "ours", "cuDNN's results differ from ours, or between runs");
    } else if (wanted == AttentionKernels::cudnn) {
      choose(shape, "cudnn", "chosen by kernels.attention");
    } else {
      const double fused = time(device, shape, true), ours = time(device, shape, false);
      choose(shape, fused < ours ? "cudnn" : "ours", milliseconds(fused) + " by cuDNN, " + milliseconds(ours) + " by ours");
    }
  }
  return chosen;
}

}  // namespace trireme
