#include "kernels/ops/attention.h"

#include <string>

#include "kernels/cuda_facts.h"
#include "kernels/device.h"
#include "kernels/vector_bytes.h"
#include "test/catch.h"
#include "test/reference/attention.h"
#include "test/reference/compare.h"

using namespace trireme;
using reference::AttentionDims;

namespace {

// One attention on real tensors: q, k, v and dout are random, the others are the ops' results.
struct AttentionCase {
  AttentionDims shape;
  Dtype dtype;
  HostTensor q, k, v, dout, out, lse, dq, dk, dv, starts;

  AttentionCase(const AttentionDims& s, Dtype type, double stddev = 1)
      : shape(s),
        dtype(type),
        q(random_tensor(type, {s.rows, s.queries, s.heads, s.head_size}, 1, stddev)),
        k(random_tensor(type, {s.rows, s.keys, s.kv_heads, s.head_size}, 2, stddev)),
        v(random_tensor(type, {s.rows, s.keys, s.kv_heads, s.head_size}, 3)),
        dout(random_tensor(type, {s.rows, s.queries, s.heads, s.head_size}, 4)),
        out(type, {s.rows, s.queries, s.heads, s.head_size}),
        lse(Dtype::f32, {s.rows, s.heads, s.queries}),
        dq(out),
        dk(type, {s.rows, s.keys, s.kv_heads, s.head_size}),
        dv(dk),
        starts(Dtype::i32, {s.rows, s.queries},
               s.document_start.empty() ? Doubles(static_cast<size_t>(s.rows * s.queries), 0)
                                        : Doubles(s.document_start.begin(), s.document_start.end())) {}

  Tensor documents() const { return shape.document_start.empty() ? Tensor{} : starts.tensor(); }
  void forward(Device& device) {
    run(device.compute(), AttentionForward{.out = out,
                                           .lse = lse,
                                           .q = q,
                                           .k = k,
                                           .v = v,
                                           .document_start = documents(),
                                           .window = shape.window,
                                           .scale = static_cast<float>(shape.scale)});
  }
  void backward(Device& device) {
    run(device.compute(), AttentionBackward{.dq = dq,
                                            .dk = dk,
                                            .dv = dv,
                                            .dout = dout,
                                            .out = out,
                                            .lse = lse,
                                            .q = q,
                                            .k = k,
                                            .v = v,
                                            .document_start = documents(),
                                            .window = shape.window,
                                            .scale = static_cast<float>(shape.scale)});
  }
};

// The processor's bf16 instructions for attention, where it has them. Those of a test are used even where others are faster.
bool has_pairs() { return tested_place() == Place::cpu && read_cpu_facts().avx512_bf16 && kVectorBytes == 64; }

// A device that uses them, or is treated as one without.
struct TestedDevice : Device {
  bool pairs;
  explicit TestedDevice(bool with = has_pairs() && GENERATE(false, true))
      : Device(tested_place(), {.avx512_bf16 = with}), pairs(with) {}
};

std::string name_of(const AttentionDims& s, Dtype dtype) {
  return text(trireme::name_of(dtype), " B ", s.rows, " T ", s.queries, " S ", s.keys, " H ", s.heads, " K ", s.kv_heads, " D ",
              s.head_size, " window ", s.window, s.document_start.empty() ? "" : " documents");
}

// Documents of every row: lengths 1, 5, 40, 2, 33, ..., each row starting at another.
std::vector<int64_t> documents(int64_t rows, int64_t queries, int64_t keys) {
  const int64_t lengths[] = {1, 5, 40, 2, 33, 64, 17};
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t place = 0, start = 0, next = lengths[row % 7], i = row + 1; place < keys; ++place) {
      if (place == next) start = place, next += lengths[i++ % 7];
      if (place >= keys - queries) starts.push_back(start);
    }
  return starts;
}

// Tensor cores and pairs of bf16 also round probabilities and gradients of scores for their products.
bool rounds_probabilities(const Device& device, Dtype dtype) {
  return dtype == Dtype::bf16 && (device.place() == Place::cuda || device.cpu().own_bf16());
}
// Scores and outputs are f32 sums of some hundred products, rounded once.
double forward_bound(const Device& device, Dtype dtype) {
  return (rounds_probabilities(device, dtype) ? 2 : 1) * rounding(dtype) + 5e-6;
}
// In addition, delta = dout . out reads the rounded out; its error is multiplied by elements of q
// and k, up to 4 here.
double backward_bound(Dtype dtype) { return 5 * rounding(dtype) + 1e-5; }

// dq and dk are differences, which vanish if a query sees one key: their error is compared with the
// subtracted terms.
double error_of_difference(const HostTensor& got, const Doubles& wanted, const AttentionDims& s) {
  const double unit = s.scale * std::sqrt(static_cast<double>(s.head_size));
  double worst = 0;
  for (int64_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - wanted[i]) / (std::abs(wanted[i]) + unit));
  return worst;
}

// Places of heads inside of one tensor: calls f(index there, index in q, k or v, which of them).
void for_each_together(const AttentionDims& s, const auto& f) {
  const int64_t q = s.heads * s.head_size, kv = s.kv_heads * s.head_size, row = q + 2 * kv;
  for (int64_t token = 0; token < s.rows * s.queries; ++token) {
    for (int64_t i = 0; i < q; ++i) f(token * row + i, token * q + i, 0);
    for (int64_t i = 0; i < kv; ++i)
      for (const int which : {1, 2}) f(token * row + q + (which - 1) * kv + i, token * kv + i, which);
  }
}

// Queries, keys and values in one tensor give the bits that `c` has of them apart.
void check_together(const AttentionCase& c, Device& device) {
  const AttentionDims& s = c.shape;
  HostTensor qkv(c.dtype, {s.rows, s.queries, (s.heads + 2 * s.kv_heads) * s.head_size}), dqkv(qkv), out(c.out), lse(c.lse);
  for (HostTensor* x : {&dqkv, &out, &lse})
    for (int64_t i = 0; i < x->size(); ++i) x->set(i, NAN);
  for_each_together(s, [&](int64_t to, int64_t from, int which) {
    qkv.set(to, (which == 0 ? c.q : which == 1 ? c.k : c.v)[from]);
  });
  const HeadViews in(qkv.tensor(), s.heads, s.kv_heads, s.head_size), gradients(dqkv.tensor(), s.heads, s.kv_heads, s.head_size);
  run(device.compute(), AttentionForward{.out = out,
                                         .lse = lse,
                                         .q = in.q,
                                         .k = in.k,
                                         .v = in.v,
                                         .document_start = c.documents(),
                                         .qkv = qkv,
                                         .window = s.window,
                                         .scale = static_cast<float>(s.scale)});
  run(device.compute(), AttentionBackward{.dq = gradients.q,
                                          .dk = gradients.k,
                                          .dv = gradients.v,
                                          .dout = c.dout,
                                          .out = out,
                                          .lse = lse,
                                          .q = in.q,
                                          .k = in.k,
                                          .v = in.v,
                                          .document_start = c.documents(),
                                          .dqkv = dqkv,
                                          .qkv = qkv,
                                          .window = s.window,
                                          .scale = static_cast<float>(s.scale)});
  bool same = true;
  for_each_together(s, [&](int64_t at, int64_t i, int which) {
    same &= dqkv[at] == (which == 0 ? c.dq : which == 1 ? c.dk : c.dv)[i];
  });
  CHECK(out == c.out);
  CHECK(lse == c.lse);
  CHECK(same);
}

void check(const AttentionDims& shape, Dtype dtype, Device& device) {
  INFO(name_of(shape, dtype));
  AttentionCase c(shape, dtype);
  c.forward(device);
  const reference::AttentionResult wanted = reference::attention(shape, c.q.values(), c.k.values(), c.v.values());
  // Over many keys and queries, rounded probabilities of one key or query add up to several.
  const double longer = rounds_probabilities(device, dtype) && shape.keys > 1000 ? 1.6 : 1;
  CHECK(error_of(c.out, wanted.out) <= longer * forward_bound(device, dtype));
  CHECK(error_of(c.lse, wanted.lse) <= 2e-6);
  if (shape.queries != shape.keys) return;
  c.backward(device);
  const reference::AttentionGradients g =
      reference::attention_backward(shape, c.dout.values(), c.q.values(), c.k.values(), c.v.values());
  CHECK(error_of_difference(c.dq, g.dq, shape) <= longer * backward_bound(dtype));
  CHECK(error_of_difference(c.dk, g.dk, shape) <= longer * backward_bound(dtype));
  CHECK(error_of(c.dv, g.dv) <= longer * backward_bound(dtype));
  check_together(c, device);
}

}  // namespace

TEST_CASE("the backward reference of attention is the gradient of its forward reference") {
  for (const int64_t window : {0, 2})
    for (const bool masked : {false, true}) {
      const AttentionDims s{
          .rows = 2,
          .queries = 6,
          .keys = 6,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 3,
          .window = window,
          .document_start = masked ? std::vector<int64_t>{0, 0, 2, 2, 2, 5, 0, 1, 1, 1, 4, 4} : std::vector<int64_t>{}};
      const Doubles q = random_doubles(s.queries_size(), 1), k = random_doubles(s.keys_size(), 2),
                    v = random_doubles(s.keys_size(), 3);
      const Doubles dout = random_doubles(s.queries_size(), 4);
      const reference::AttentionGradients g = reference::attention_backward(s, dout, q, k, v);
      CHECK(close(g.dq, finite_differences([&](const Doubles& x) { return dot(reference::attention(s, x, k, v).out, dout); }, q),
                  1e-8));
      CHECK(close(g.dk, finite_differences([&](const Doubles& x) { return dot(reference::attention(s, q, x, v).out, dout); }, k),
                  1e-8));
      CHECK(close(g.dv, finite_differences([&](const Doubles& x) { return dot(reference::attention(s, q, k, x).out, dout); }, v),
                  1e-8));
    }
}

TEST_CASE("attention agrees with its reference for odd lengths, head sizes and groups") {
  TestedDevice device;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int64_t t = GENERATE(1, 2, 31, 64, 65, 200);
  if (!thorough() && t != 2 && t != 65) return;
  for (const int64_t d : {7, 8, 33, 40, 64, 128})
    for (const int64_t group : {1, 2, 4})
      if (t < 64 || (t + d / 8) % 3 == group % 3)
        check({.rows = 2, .queries = t, .keys = t, .heads = 4, .kv_heads = 4 / group, .head_size = d}, dtype, device);
}

TEST_CASE("attention agrees with its reference for windows and documents") {
  TestedDevice device;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int64_t window : {0, 1, 7, 64})
      for (const int64_t t : {1, 2, 31, 65, 130})
        for (const bool masked : {false, true})
          if (thorough() || (t > 30 && window % 7 == 0))
            check({.rows = 2,
                   .queries = t,
                   .keys = t,
                   .heads = 2,
                   .kv_heads = t % 2 ? 1 : 2,
                   .head_size = masked ? 64 : 24,
                   .window = window,
                   .document_start = masked ? documents(2, t, t) : std::vector<int64_t>{}},
                  dtype, device);
}

TEST_CASE("attention by a library's fused kernels agrees with its reference") {
  Device device(tested_place());
  bool differed = false;  // from ours, in the last bits
  for (const int64_t t : {8, 64, 128})
    for (const int64_t window : {0, 7})
      for (const int64_t kv_heads : {1, 4})
        for (const bool masked : {false, true}) {
          const AttentionDims shape{.rows = 2,
                                    .queries = t,
                                    .keys = t,
                                    .heads = 4,
                                    .kv_heads = kv_heads,
                                    .head_size = 64,
                                    .window = window,
                                    .document_start = masked ? documents(2, t, t) : std::vector<int64_t>{}};
          AttentionShape problem{
              .rows = 2, .tokens = t, .heads = 4, .kv_heads = kv_heads, .head_size = 64, .window = window, .documents = masked};
          if (device.place() != Place::cuda || !fused_refusal(problem).empty() || (!thorough() && t != 64)) continue;
          device.attention().clear();
          AttentionCase ours(shape, Dtype::bf16);
          ours.forward(device), ours.backward(device);
          for (const bool together : {false, true})
            for (const bool backward : {false, true}) {
              problem.together = together, problem.backward = backward;
              if (fused_refusal(problem).empty()) device.attention()[problem.words()] = "cudnn";
            }
          check(shape, Dtype::bf16, device);
          AttentionCase fused(shape, Dtype::bf16), again(shape, Dtype::bf16);
          for (AttentionCase* c : {&fused, &again}) c->forward(device), c->backward(device);
          CHECK((fused.out == again.out && fused.dq == again.dq && fused.dk == again.dk && fused.dv == again.dv));
          differed |= !(fused.lse == ours.lse) && !(fused.dk == ours.dk);
          check(shape, Dtype::f32, device);  // which no library supports
        }
  CHECK((differed || device.place() == Place::cpu || !fused_attention_facts().found));
}

TEST_CASE("attention of the last queries of a key-value cache agrees with its reference") {
  TestedDevice device;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int64_t t : {1, 2, 33})
      for (const int64_t s : {33, 64, 200})
        for (const int64_t window : {0, 1, 7, 64})
          for (const bool masked : {false, true})
            if (thorough() || (t == 2 && s > 60 && window % 7 == 0))
              check({.rows = 2,
                     .queries = t,
                     .keys = s,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_size = window > 5 ? 64 : 40,
                     .window = window,
                     .document_start = masked ? documents(2, t, s) : std::vector<int64_t>{}},
                    dtype, device);
}

TEST_CASE("attention gives the same bits twice and for any number of threads") {
  TestedDevice device;
  for (const auto& [dtype, size] : {std::pair(Dtype::f32, 40), std::pair(Dtype::bf16, 40), std::pair(Dtype::bf16, 64)})
    for (const int64_t t : {1, 200}) {
      const AttentionDims shape{
          .rows = 1, .queries = t, .keys = t, .heads = 6, .kv_heads = 3, .head_size = size, .document_start = documents(1, t, t)};
      AttentionCase first(shape, dtype);
      first.forward(device);
      first.backward(device);
      for (const int count : thorough() ? std::vector{1, 2, 3, 3} : std::vector{3}) {
        const Threads threads(count);
        AttentionCase again(shape, dtype);
        again.forward(device);
        again.backward(device);
        CHECK((again.out == first.out && again.lse == first.lse));
        CHECK((again.dq == first.dq && again.dk == first.dk && again.dv == first.dv));
      }
    }
}

TEST_CASE("attention whose heads are divided among threads agrees with its reference, to the same bits", "[cpu]") {
  TestedDevice device;
  const int64_t t = GENERATE(255, 256, 300, 1100), window = GENERATE(0, 100, 700);
  const Dtype dtype = t == 300 || window == 700 ? Dtype::bf16 : Dtype::f32;
  if (device.pairs && dtype == Dtype::f32) return;  // as without
  for (const bool masked : {false, true}) {
    const auto shape_of = [&](int64_t rows) {
      return AttentionDims{.rows = rows,
                           .queries = t,
                           .keys = t,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_size = 24,
                           .window = window,
                           .document_start = masked ? documents(rows, t, t) : std::vector<int64_t>{}};
    };
    // Two heads on five threads and four on eight are divided; two or four on one or two threads are not.
    for (const int count : {1, 5}) {
      const Threads threads(count);
      check(shape_of(1), dtype, device);
    }
    const auto found_with = [&](int count, int64_t rows) {
      const Threads threads(count);
      AttentionCase found(shape_of(rows), dtype);
      found.forward(device), found.backward(device);
      return found;
    };
    const AttentionCase whole = found_with(1, 2);
    for (const int count : {2, 3, 8}) {
      const AttentionCase other = found_with(count, 2);
      CHECK((other.dq == whole.dq && other.dk == whole.dk && other.dv == whole.dv));
    }
    const AttentionCase first = found_with(8, 1);
    for (int64_t i = 0; i < first.dk.size(); ++i)
      if (!masked && !(first.dk[i] == whole.dk[i] && first.dv[i] == whole.dv[i])) FAIL(i << " depends on the number of rows");
  }
}

TEST_CASE("keys and values that a query does not see never reach it, nor their gradients") {
  TestedDevice device;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int64_t queries : thorough() ? std::vector<int64_t>{1, 5, 150} : std::vector<int64_t>{5}) {
      const int64_t keys = 150;
      AttentionDims shape{.rows = 2,
                          .queries = queries,
                          .keys = keys,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_size = 24,
                          .window = 50,
                          .document_start = documents(2, queries, keys)};
      AttentionCase before(shape, dtype);
      before.forward(device);
      bool other = false;  // only queries that may see the change see it
      for (int64_t t = 0; t < queries; t += 1 + queries / 9) {
        AttentionCase after = before;
        for (int64_t row = 0; row < 2; ++row)
          for (int64_t key = 0; key < keys; ++key)
            for (int64_t i = 0; i < 2 * 24 && !shape.sees(row, t, key); ++i)
              for (HostTensor* x : {&after.k, &after.v}) x->set((row * keys + key) * 48 + i, 1e4 * (i % 3 - 1) + key);
        after.forward(device);
        bool same = true;
        for (int64_t i = 0; i < after.out.size(); ++i) {
          const bool equal = after.out[i] == before.out[i];
          (i / 96 % queries == t ? same : other) = i / 96 % queries == t ? same && equal : other || !equal;
        }
        CHECK(same);
      }
      CHECK((other || queries == 1));
    }
  // A query's gradient reaches no key that it does not see.
  AttentionDims shape{.rows = 1, .queries = 130, .keys = 130, .heads = 2, .kv_heads = 1, .head_size = 24, .window = 30};
  AttentionCase c(shape, GENERATE(Dtype::f32, Dtype::bf16));
  c.forward(device);
  for (int64_t i = 0; i < c.dout.size(); ++i)
    if (i / 48 != 100) c.dout.set(i, 0);
  c.backward(device);
  for (int64_t key = 0; key < 130; ++key) {
    double sum = 0;
    for (int64_t i = key * 24; i < (key + 1) * 24; ++i) sum += std::abs(c.dk[i]) + std::abs(c.dv[i]);
    CHECK((sum > 0) == shape.sees(0, 100, key));
  }
}

TEST_CASE("attention overwrites whatever its outputs held") {
  TestedDevice device;
  const AttentionDims shape{.rows = 1, .queries = 70, .keys = 70, .heads = 2, .kv_heads = 1, .head_size = 20, .window = 3};
  AttentionCase clean(shape, Dtype::bf16), dirty(shape, Dtype::bf16);
  for (HostTensor* x : {&dirty.out, &dirty.lse, &dirty.dq, &dirty.dk, &dirty.dv})
    for (int64_t i = 0; i < x->size(); ++i) x->set(i, NAN);
  for (AttentionCase* c : {&clean, &dirty}) c->forward(device), c->backward(device);
  CHECK((clean.out == dirty.out && clean.lse == dirty.lse && clean.dq == dirty.dq && clean.dk == dirty.dk && clean.dv == dirty.dv));
}

TEST_CASE("attention stays exact where scores are huge, and lets a NaN through") {
  TestedDevice device;
  for (const auto& [t, size] : {std::pair(1, 16), std::pair(70, 16), std::pair(70, 64)}) {
    // Scores of about 1e4: each query's softmax is nearly one key.
    const AttentionDims shape{.rows = 1, .queries = t, .keys = t, .heads = 2, .kv_heads = 2, .head_size = size, .scale = 1};
    AttentionCase c(shape, Dtype::bf16, 50);
    c.forward(device);
    c.backward(device);
    const reference::AttentionResult wanted = reference::attention(shape, c.q.values(), c.k.values(), c.v.values());
    CHECK(error_of(c.out, wanted.out) <= 0.01);  // a score of 1e4 has an error of 1e-3
    CHECK(error_of(c.lse, wanted.lse) <= 2e-6);
    for (const double x : c.dq.values()) REQUIRE(std::isfinite(x));
    c.q.set(0, NAN);
    c.forward(device);
    CHECK(std::isnan(c.out[0]));
    CHECK((t == 1 || !std::isnan(c.out[2 * size])));
  }
}

TEST_CASE("attention multiplies pairs of bf16 where the processor can, and f32 in f32", "[cpu]") {
  const AttentionDims shape{.rows = 1, .queries = 70, .keys = 70, .heads = 2, .kv_heads = 1, .head_size = 20};
  Device without(tested_place()), with(tested_place(), {.avx512_bf16 = has_pairs()}),
      slow(tested_place(), {.avx512_bf16 = has_pairs(), .slow_bf16 = true});
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    AttentionCase plain(shape, dtype), paired(shape, dtype);
    plain.forward(without), paired.forward(with);
    const bool same = dtype == Dtype::f32 || !has_pairs();
    CHECK((plain.out == paired.out) == same);
    paired.out = plain.out, paired.lse = plain.lse;
    plain.backward(without), paired.backward(with);
    CHECK((plain.dq == paired.dq) == same);
    CHECK((plain.dk == paired.dk) == same);
    CHECK((plain.dv == paired.dv) == same);
    paired.forward(slow), paired.backward(slow);
    CHECK((plain.out == paired.out && plain.dq == paired.dq && plain.dk == paired.dk && plain.dv == paired.dv));
  }
}

TEST_CASE("attention over a long row needs memory in proportion to its length") {
  TestedDevice device;
  const Threads threads(2);
  const int64_t length = thorough() ? 8192 : 2048;
  AttentionCase c({.rows = 1, .queries = length, .keys = length, .heads = 1, .kv_heads = 1, .head_size = 8, .window = 128},
                  Dtype::bf16);
  c.forward(device);
  c.backward(device);
  CHECK(device.workspace_bytes() < 2 * 6 * length * 16 * 4);
  const AttentionDims tail{.rows = 1, .queries = 1, .keys = length, .heads = 1, .kv_heads = 1, .head_size = 8, .window = 128};
  const Doubles q = c.q.values();
  const reference::AttentionResult wanted = reference::attention(tail, Doubles(q.end() - 8, q.end()), c.k.values(), c.v.values());
  const Doubles out = c.out.values();
  CHECK(error_of(Doubles(out.end() - 8, out.end()), wanted.out) <= forward_bound(device, Dtype::bf16));
}

TEST_CASE("attention refuses shapes that do not fit and documents from the future") {
  TestedDevice device;
  const auto refused = [&](const AttentionDims& s) {
    AttentionCase c(s, Dtype::f32);
    CHECK_THROWS_AS(c.forward(device), Error);
  };
  refused({.rows = 1, .queries = 5, .keys = 4, .heads = 2, .kv_heads = 2, .head_size = 8});
  refused({.rows = 1, .queries = 4, .keys = 4, .heads = 3, .kv_heads = 2, .head_size = 8});
  if (tested_place() != Place::cpu) return;  // elsewhere values are not checked beforehand
  refused({.rows = 1, .queries = 2, .keys = 2, .heads = 1, .kv_heads = 1, .head_size = 8, .document_start = {0, 2}});
  refused({.rows = 1, .queries = 2, .keys = 2, .heads = 1, .kv_heads = 1, .head_size = 8, .document_start = {-1, 0}});
  AttentionCase c({.rows = 1, .queries = 4, .keys = 4, .heads = 2, .kv_heads = 2, .head_size = 8}, Dtype::f32);
  c.k = HostTensor(Dtype::bf16, {1, 4, 2, 8});
  CHECK_THROWS_AS(c.forward(device), Error);
  AttentionCase longer({.rows = 1, .queries = 3, .keys = 4, .heads = 2, .kv_heads = 2, .head_size = 8}, Dtype::f32);
  longer.forward(device);
  CHECK_THROWS_AS(longer.backward(device), Error);
}

TEST_CASE("attention of no rows and of no queries does nothing") {
  TestedDevice device;
  for (const int64_t rows : {0, 2}) {
    AttentionCase c({.rows = rows, .queries = 0, .keys = 0, .heads = 2, .kv_heads = 2, .head_size = 8}, Dtype::f32);
    c.forward(device);
    c.backward(device);
    CHECK(c.out.size() == 0);
  }
}

TEST_CASE("attention counts four products forward, ten backward of the visible pairs") {
  CHECK(attention_pairs(4, 4, 0) == 10);
  CHECK(attention_pairs(4, 4, 2) == 7);
  CHECK(attention_pairs(1, 8, 0) == 8);
  const Tensor q = imagined(Dtype::bf16, {3, 4, 2, 8});
  CHECK(AttentionForward{.out = q, .lse = {}, .q = q, .k = q, .v = q, .scale = 1}.flops() == 4 * 3 * 2 * 8 * 10);
}
