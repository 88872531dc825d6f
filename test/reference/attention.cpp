#include "test/reference/attention.h"

#include <cmath>

namespace trireme::reference {
namespace {

// Calls f(row, head, query, offset of the query's row in q, probabilities of the keys, lse).
void for_each_query(const AttentionDims& s, const Doubles& q, const Doubles& k, const auto& f) {
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t t = 0; t < s.queries; ++t) {
        const int64_t at = ((row * s.queries + t) * s.heads + head) * s.head_size;
        Doubles p(static_cast<size_t>(s.keys), 0);
        double top = -INFINITY, sum = 0;
        const auto score = [&](int64_t j) {
          const int64_t key = ((row * s.keys + j) * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_size;
          double x = 0;
          for (int64_t d = 0; d < s.head_size; ++d) x += q[at + d] * k[key + d];
          return s.scale * x;
        };
        for (int64_t j = 0; j < s.keys; ++j) p[j] = s.sees(row, t, j) ? score(j) : -INFINITY, top = std::max(top, p[j]);
        for (double& x : p) sum += std::exp(x - top);
        for (double& x : p) x = std::exp(x - top) / sum;
        f(row, head, t, at, p, top + std::log(sum));
      }
}

}  // namespace

bool AttentionDims::sees(int64_t row, int64_t query, int64_t key) const {
  const int64_t place = keys - queries + query;
  return key <= place && (window == 0 || key > place - window) &&
         (document_start.empty() || key >= document_start[row * queries + query]);
}

AttentionResult attention(const AttentionDims& s, const Doubles& q, const Doubles& k, const Doubles& v) {
  AttentionResult r{Doubles(q.size(), 0), Doubles(static_cast<size_t>(s.rows * s.heads * s.queries))};
  for_each_query(s, q, k, [&](int64_t row, int64_t head, int64_t t, int64_t at, const Doubles& p, double lse) {
    r.lse[(row * s.heads + head) * s.queries + t] = lse;
    for (int64_t j = 0; j < s.keys; ++j)
      for (int64_t d = 0; d < s.head_size; ++d)
        r.out[at + d] += p[j] * v[((row * s.keys + j) * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_size + d];
  });
  return r;
}

AttentionGradients attention_backward(const AttentionDims& s, const Doubles& dout, const Doubles& q, const Doubles& k,
                                      const Doubles& v) {
  AttentionGradients g{Doubles(q.size(), 0), Doubles(k.size(), 0), Doubles(v.size(), 0)};
  for_each_query(s, q, k, [&](int64_t row, int64_t head, int64_t, int64_t at, const Doubles& p, double) {
    const auto key = [&](int64_t j) { return ((row * s.keys + j) * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_size; };
    Doubles dp(p.size(), 0);
    double mean = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      for (int64_t d = 0; d < s.head_size; ++d) dp[j] += dout[at + d] * v[key(j) + d];
      mean += p[j] * dp[j];
    }
    for (int64_t j = 0; j < s.keys; ++j)
      for (int64_t d = 0; d < s.head_size; ++d) {
        const double ds = s.scale * p[j] * (dp[j] - mean);
        g.dq[at + d] += ds * k[key(j) + d];
        g.dk[key(j) + d] += ds * q[at + d];
        g.dv[key(j) + d] += p[j] * dout[at + d];
      }
  });
  return g;
}

}  // namespace trireme::reference
