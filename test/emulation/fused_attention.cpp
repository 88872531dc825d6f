// Emulated library of fused attention: sums in double, rounded once. It refuses contexts that are
// not a multiple of 8, as any such library refuses some shapes.
#include "kernels/cuda/fused_attention.h"

#include <cmath>
#include <vector>

#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

double read(const Tensor& x, int64_t i) { return static_cast<float>(static_cast<const Bf16*>(x.data())[i]); }
void write(const Tensor& x, int64_t i, double value) { static_cast<Bf16*>(x.data())[i] = Bf16(static_cast<float>(value)); }

// A head of one row: the places of its elements, and the keys that its queries see.
struct Head {
  const AttentionShape& s;
  const Tensor& start;
  int64_t row, head;
  int64_t out(int64_t t, int64_t d = 0) const { return ((row * s.tokens + t) * s.heads + head) * s.head_size + d; }
  int64_t query(int64_t t, int64_t d = 0) const { return (row * s.tokens + t) * s.row(s.heads) + head * s.head_size + d; }
  int64_t key(int64_t t, int64_t d = 0) const {
    return (row * s.tokens + t) * s.row(s.kv_heads) + head * s.kv_heads / s.heads * s.head_size + d;
  }
  int64_t first(int64_t t) const {
    const int64_t first = s.window > 0 ? std::max<int64_t>(0, t - s.window + 1) : 0;
    return s.documents ? std::max<int64_t>(first, static_cast<const int32_t*>(start.data())[row * s.tokens + t]) : first;
  }
  double dot(const Tensor& a, int64_t at, const Tensor& b, int64_t with) const {
    double sum = 0;
    for (int64_t d = 0; d < s.head_size; ++d) sum += read(a, at + d) * read(b, with + d);
    return sum;
  }
  float& lse(const Tensor& x, int64_t t) const { return static_cast<float*>(x.data())[(row * s.heads + head) * s.tokens + t]; }
};

void forward(const AttentionShape& s, const AttentionForward& op) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t t = 0; t < s.tokens; ++t) {
        const Head h{s, op.document_start, row, head};
        std::vector<double> p;
        double top = -INFINITY, total = 0;
        for (int64_t key = h.first(t); key <= t; ++key) {
          p.push_back(op.scale * h.dot(op.q, h.query(t), op.k, h.key(key)));
          top = std::max(top, p.back());
        }
        for (double& x : p) total += x = std::exp(x - top);
        h.lse(op.lse, t) = static_cast<float>(top + std::log(total));
        for (int64_t d = 0; d < s.head_size; ++d) {
          double sum = 0;
          for (int64_t key = h.first(t); key <= t; ++key)
            sum += p[static_cast<size_t>(key - h.first(t))] * read(op.v, h.key(key, d));
          write(op.out, h.out(t, d), sum / total);
        }
      }
}

// One key-value head of one row, with all its heads of queries.
void backward_of(const AttentionShape& s, const AttentionBackward& op, int64_t row, int64_t kv) {
  const int64_t group = s.heads / s.kv_heads, size = s.head_size;
  std::vector<double> dk(static_cast<size_t>(s.tokens * size)), dv(dk), dq(static_cast<size_t>(size));
  for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
    for (int64_t t = 0; t < s.tokens; ++t) {
      const Head h{s, op.document_start, row, head};
      const double delta = h.dot(op.dout, h.out(t), op.out, h.out(t));
      std::fill(dq.begin(), dq.end(), 0.0);
      for (int64_t key = h.first(t); key <= t; ++key) {
        const double p = std::exp(op.scale * h.dot(op.q, h.query(t), op.k, h.key(key)) - h.lse(op.lse, t));
        const double ds = p * (h.dot(op.dout, h.out(t), op.v, h.key(key)) - delta) * op.scale;
        for (int64_t d = 0; d < size; ++d) {
          dq[static_cast<size_t>(d)] += ds * read(op.k, h.key(key, d));
          dk[static_cast<size_t>(key * size + d)] += ds * read(op.q, h.query(t, d));
          dv[static_cast<size_t>(key * size + d)] += p * read(op.dout, h.out(t, d));
        }
      }
      for (int64_t d = 0; d < size; ++d) write(op.dq, h.query(t, d), dq[static_cast<size_t>(d)]);
    }
  const Head h{s, op.document_start, row, kv * group};
  for (int64_t key = 0; key < s.tokens; ++key)
    for (int64_t d = 0; d < size; ++d) {
      write(op.dk, h.key(key, d), dk[static_cast<size_t>(key * size + d)]);
      write(op.dv, h.key(key, d), dv[static_cast<size_t>(key * size + d)]);
    }
}

void backward(const AttentionShape& s, const AttentionBackward& op) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) backward_of(s, op, row, kv);
}

}  // namespace

FusedFacts fused_attention_facts() { return {.found = true, .verdict = "emulated cuDNN"}; }
std::string fused_refusal(const AttentionShape& shape) {
  return shape.tokens % 8 == 0 ? "" : "emulated cuDNN: the context is not a multiple of 8; using our kernels";
}
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionForward& op) {
  ok(emulation::in_stream(stream_of(cuda), [shape, op] { forward(shape, op); }));
}
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionBackward& op) {
  ok(emulation::in_stream(stream_of(cuda), [shape, op] { backward(shape, op); }));
}

}  // namespace trireme
