#include "train/step/copy_sum.h"

#include <algorithm>
#include <array>

#include "base/philox.h"
#include "kernels/ops/compress.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/low_rank.h"
#include "kernels/ops/matmul.h"
#include "parallel/collectives.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = int64_t{8} << 20;  // elements that are sent at once: limits the room for codes

// Elements of each copy's share of a piece: whole blocks of codes.
int64_t share_of(int64_t piece, int64_t copies) { return (Codes::blocks(piece) + copies - 1) / copies * Codes::kBlock; }

int64_t words_of(Compress compress) { return compress == Compress::int8 ? Codes::kInt8 : Codes::kBf16; }

}  // namespace

CopySum::CopySum(const ParallelConfig& config, const Mesh& mesh, const Stage& stage, Arenas& arenas)
    : copies_(mesh.copy_group()),
      stage_(stage),
      compress_(config.compress),
      bf16_on_wire_(config.reduce == ReduceDtype::bf16),
      rank_(config.compress_rank),
      units_(stage.units().size()) {
  if (!compresses()) return;
  int64_t longest = 0, sent = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    OfUnit& of = units_[i];
    list(of, i);
    const int64_t n = stage.units()[i].gradients_part.size();
    if (std::ranges::equal(of.exact, std::array{Range{0, n}})) continue;
    of.rest = arenas.optimizer.take(Dtype::bf16, {n}), of.next = arenas.optimizer.take(Dtype::bf16, {n});
    longest = std::max(longest, n), sent = std::max(sent, of.sent);
    if (of.matrices.empty()) continue;
    const int64_t bases = of.matrices.back().basis + of.matrices.back().cols * rank_;
    of.bases = arenas.temporaries.take(Dtype::f32, {bases}), of.following = arenas.temporaries.take(Dtype::f32, {bases});
  }
  if (copies_.size() == 1) return;
  sent_ = arenas.temporaries.take(Dtype::f32, {sent});
  if (compress_ == Compress::powersgd) return;
  const int64_t blocks = copies_.size() * share_of(std::min(longest, kPiece), copies_.size()) / Codes::kBlock;
  out_ = arenas.temporaries.take(Dtype::i32, {blocks, words_of(compress_)});
  in_ = arenas.temporaries.take(Dtype::i32, {blocks, words_of(compress_)});
}

// Positions are on one rank of a tp group alone. Two narrow matrices are worth it if they have less than half the elements, and
// not for the vocabulary's tables, whose rare rows they would lose (Ramesh et al., "Zero-shot text-to-image generation", 2021).
bool CopySum::is_coded(const Parameter& parameter) const {
  const std::vector<int64_t>& shape = parameter.spec.shape;
  if (!compresses() || shape.size() != 2 || parameter.spec.shared != Shared::no) return false;
  const UnitKind kind = stage_.units()[parameter.unit].id.kind;
  if (kind == UnitKind::positions) return false;
  if (compress_ == Compress::powersgd && kind != UnitKind::block) return false;
  return compress_ != Compress::powersgd || 2 * rank_ * (shape[0] + shape[1]) <= shape[0] * shape[1];
}

// Lists what of a unit's part is summed exactly. Elements between weights, which are 0, are.
void CopySum::list(OfUnit& of, size_t unit) {
  const int64_t n = stage_.units()[unit].gradients_part.size(), first = stage_.shape().holding.part * n;
  int64_t at = 0;
  const auto exact_until = [&](int64_t begin) {
    if (at < begin) of.exact.push_back({at, begin}), of.sent += begin - at;
  };
  for (const Parameter& parameter : stage_.parameters()) {
    if (parameter.unit != unit || !is_coded(parameter)) continue;
    const int64_t begin = std::max(parameter.begin - first, at), end = std::min(parameter.begin - first + parameter.spec.size(), n);
    if (begin >= end) continue;
    exact_until(begin);
    at = end;
    if (compress_ != Compress::powersgd) continue;
    const int64_t rows = parameter.spec.shape[0], cols = parameter.spec.shape[1];
    const int64_t basis = of.matrices.empty() ? 0 : of.matrices.back().basis + of.matrices.back().cols * rank_;
    of.matrices.push_back({.parameter = &parameter, .rows = rows, .cols = cols, .basis = basis});
    of.narrow += rows * rank_;
  }
  exact_until(n);
  of.sent += of.narrow;
}

void CopySum::initialise(Stream& stream, int64_t seed) {
  for (const OfUnit& of : units_) {
    if (!of.rest) continue;
    run(stream, Fill{.x = of.rest}), run(stream, Fill{.x = of.next});
    for (const Matrix& m : of.matrices)
      run(stream, FillNormal{.x = q_of(of.bases, m),
                             .key = stream_key(static_cast<uint64_t>(seed), "basis of " + m.parameter->spec.name),
                             .cols = rank_,
                             .stride = rank_});
    if (of.bases) run(stream, Cast{.y = of.following, .x = of.bases});
  }
}

std::vector<CopySum::Basis> CopySum::bases() const {
  std::vector<Basis> list;
  for (const OfUnit& of : units_)
    for (const Matrix& m : of.matrices) list.push_back({.parameter = m.parameter, .q = q_of(of.bases, m)});
  return list;
}

Tensor CopySum::q_of(const Tensor& bases, const Matrix& m) const {
  return bases.slice(m.basis, m.basis + m.cols * rank_).view({m.cols, rank_});
}

void CopySum::sum(Stream& stream, size_t unit, bool exactly) {
  const Tensor x = stage_.units()[unit].gradients_part;
  const OfUnit& of = units_[unit];
  if (x.size() == 0) return;
  if (!of.rest || !apart_ || exactly) {
    if (copies_.size() > 1) run(copies_, stream, AllReduce{.x = x, .bf16_on_wire = bf16_on_wire_});
  } else if (copies_.size() == 1) {
    // Other copies have left something out before they were fewer.
    run(stream, SumCodes{.y = x, .rest = of.rest});
    run(stream, Fill{.x = of.next});
  } else {
    compress_ == Compress::powersgd ? sum_products(stream, of, x) : sum_codes(stream, of, x);
  }
}

void CopySum::keep(Stream& stream, const Tensor& gate) {
  if (!apart_) return;
  const auto keep = [&](const Tensor& kept, const Tensor& next) {
    if (gate)
      run(stream, KeepIfPassed{.kept = kept, .next = next, .gate = gate});
    else
      run(stream, Cast{.y = kept, .x = next});
  };
  for (const OfUnit& of : units_) {
    if (of.rest) keep(of.rest, of.next);
    if (of.bases && copies_.size() > 1) keep(of.bases, of.following);
  }
}

// Calls move(elements of the unit's part, the same elements of what is sent) for those that are summed
// exactly.
template <class Move>
void CopySum::for_each_exact(const OfUnit& of, Move move) const {
  int64_t at = of.narrow;
  for (const Range& range : of.exact) {
    const int64_t count = range.end - range.begin;
    move(range, sent_.slice(at, at + count));
    at += count;
  }
}

void CopySum::sum_codes(Stream& stream, const OfUnit& of, const Tensor& x) {
  for_each_exact(of, [&](const Range& r, const Tensor& sent) { run(stream, Cast{.y = sent, .x = x.slice(r.begin, r.end)}); });
  if (of.sent > 0) run(copies_, stream, AllReduce{.x = sent_.slice(0, of.sent)});
  for (int64_t begin = 0; begin < x.size(); begin += kPiece)
    sum_piece(stream, of, x.slice(begin, std::min(x.size(), begin + kPiece)), begin);
  for_each_exact(of, [&](const Range& r, const Tensor& sent) {
    run(stream, Cast{.y = x.slice(r.begin, r.end), .x = sent});
    run(stream, Fill{.x = of.next.slice(r.begin, r.end)});
  });
}

// Sums elements [begin, begin + x.size()) of a unit's part.
void CopySum::sum_piece(Stream& stream, const OfUnit& of, const Tensor& x, int64_t begin) {
  const int64_t n = x.size(), size = copies_.size(), me = copies_.rank(), share = share_of(n, size), blocks = share / Codes::kBlock;
  const Tensor rest = of.rest.slice(begin, begin + n), next = of.next.slice(begin, begin + n);
  const Tensor out = out_.slice(0, size * blocks), in = in_.slice(0, size * blocks),
               mine = out.slice(me * blocks, (me + 1) * blocks);
  const auto flat = [](const Tensor& t) { return t.view({t.size()}); };
  run(stream, Encode{.codes = out.slice(0, Codes::blocks(n)), .x = x, .rest = rest, .next = next});
  run(copies_, stream, AllToAll{.to = flat(in), .from = flat(out)});
  const int64_t first = std::min(n, me * share), last = std::min(n, first + share);
  if (first < last) {
    const Tensor sum = x.slice(first, last);
    run(stream, SumCodes{.y = sum, .rest = rest.slice(first, last), .codes = in, .rank = me, .ranks = size});
    run(stream, Encode{.codes = mine.slice(0, Codes::blocks(last - first)), .x = sum, .next = next.slice(first, last)});
  }
  run(copies_, stream, AllGather{.all = flat(in), .part = flat(mine)});
  run(stream, Decode{.y = x, .codes = in.slice(0, Codes::blocks(n))});
}

void CopySum::sum_products(Stream& stream, const OfUnit& of, const Tensor& x) {
  const auto elements = [&](const Tensor& t, const Matrix& m) {
    return t.slice(m.parameter->begin, m.parameter->begin + m.rows * m.cols);
  };
  const auto matrix = [&](const Tensor& t, const Matrix& m) { return elements(t, m).view({m.rows, m.cols}); };
  std::vector<Tensor> p;
  int64_t at = 0;
  for (const Matrix& m : of.matrices) {
    p.push_back(sent_.slice(at, at + m.rows * rank_).view({m.rows, rank_}));
    at += m.rows * rank_;
    run(stream, SumCodes{.y = elements(x, m), .rest = elements(of.rest, m)});
    run(stream, Matmul{.c = p.back(), .a = matrix(x, m), .b = q_of(of.bases, m)});
  }
  for_each_exact(of, [&](const Range& r, const Tensor& sent) { run(stream, Cast{.y = sent, .x = x.slice(r.begin, r.end)}); });
  run(copies_, stream, AllReduce{.x = sent_.slice(0, of.sent)});
  for (size_t i = 0; i < p.size(); ++i) {
    const Matrix& m = of.matrices[i];
    const Tensor q = q_of(of.following, m);
    run(stream, Orthonormalize{.x = p[i]});
    run(stream, Matmul{.c = q, .a = matrix(x, m), .b = p[i], .transpose_a = true});
    run(stream, LowRankRest{.next = matrix(of.next, m), .x = matrix(x, m), .p = p[i], .q = q});
  }
  for_each_exact(of, [&](const Range& r, const Tensor& sent) { run(stream, Cast{.y = x.slice(r.begin, r.end), .x = sent}); });
  run(copies_, stream, AllReduce{.x = of.following});
  for (size_t i = 0; i < p.size(); ++i)
    run(stream, LowRank{.y = matrix(x, of.matrices[i]), .p = p[i], .q = q_of(of.following, of.matrices[i])});
}

}  // namespace trireme
