// TensorRegion: a rectangular part of a tensor's elements, in the tensor's global coordinates. It
// relates pieces on disk to slices in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme {

struct TensorRegion {
  std::vector<int64_t> offset, shape;  // of equal length
  bool operator==(const TensorRegion&) const = default;

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
};

inline TensorRegion whole(const std::vector<int64_t>& shape) {
  return {.offset = std::vector<int64_t>(shape.size(), 0), .shape = shape};
}

// Intersection of two regions with equally many dims; empty if they do not overlap.
inline TensorRegion intersect(const TensorRegion& a, const TensorRegion& b) {
  TensorRegion both = a;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    both.offset[d] = begin;
    both.shape[d] = std::max<int64_t>(0, end - begin);
  }
  return both;
}

// The part of `a` outside `b`, as disjoint regions: at most two for each dim.
inline std::vector<TensorRegion> subtract(const TensorRegion& a, const TensorRegion& b) {
  const TensorRegion common = intersect(a, b);
  if (common.size() == 0) return {a};
  std::vector<TensorRegion> parts;
  TensorRegion rest = a;
  const auto add = [&](size_t d, int64_t begin, int64_t end) {
    if (begin >= end) return;
    TensorRegion part = rest;
    part.offset[d] = begin, part.shape[d] = end - begin;
    parts.push_back(part);
  };
  for (size_t d = 0; d < a.shape.size(); ++d) {
    add(d, a.offset[d], common.offset[d]);
    add(d, common.offset[d] + common.shape[d], a.offset[d] + a.shape[d]);
    rest.offset[d] = common.offset[d], rest.shape[d] = common.shape[d];
  }
  return parts;
}

// Elements [begin, end) of a region, counted row-major within it.
struct ElementRange {
  int64_t begin, end;
};

// Cuts these elements of `inner` into runs that are contiguous in both `a` and `b` (each stored
// row-major, each containing `inner`). Calls run(index in a, index in b, count) for each, in order.
template <class Run>
void for_each_run(const TensorRegion& inner, ElementRange elements, const TensorRegion& a, const TensorRegion& b, Run run) {
  int last = static_cast<int>(inner.shape.size()) - 1;  // the dim along which a run lies; later dims are taken whole
  int64_t length = inner.shape[static_cast<size_t>(last)];
  for (; last > 0; --last) {
    const auto d = static_cast<size_t>(last);
    if (inner.shape[d] != a.shape[d] || inner.shape[d] != b.shape[d]) break;
    length *= inner.shape[d - 1];
  }
  for (int64_t i = elements.begin; i < elements.end;) {
    const int64_t within = i % length, count = std::min(length - within, elements.end - i);
    int64_t row = i / length, in_a = 0, in_b = 0, stride_a = 1, stride_b = 1;
    for (int k = static_cast<int>(inner.shape.size()) - 1; k >= 0; --k) {
      const auto d = static_cast<size_t>(k);
      const int64_t at = inner.offset[d] + (k < last ? row % inner.shape[d] : 0);
      if (k < last) row /= inner.shape[d];
      in_a += (at - a.offset[d]) * stride_a;
      in_b += (at - b.offset[d]) * stride_b;
      stride_a *= a.shape[d];
      stride_b *= b.shape[d];
    }
    run(in_a + within, in_b + within, count);
    i += count;
  }
}

}  // namespace trireme
