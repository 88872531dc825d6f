#include "train/telemetry/downsampled_curve.h"

#include <algorithm>
#include <cmath>

namespace trireme {

namespace {

DownsampledCurve::Bin bin_of(int64_t x, double y) {
  if (!std::isfinite(y))
    return {.first_x = x, .last_x = x, .min_x = x, .max_x = x, .min = 0, .max = 0, .sum = 0, .count = 0, .gaps = 1};
  return {.first_x = x, .last_x = x, .min_x = x, .max_x = x, .min = y, .max = y, .sum = y, .count = 1, .gaps = 0};
}

void merge(DownsampledCurve::Bin& into, const DownsampledCurve::Bin& later) {
  if (later.count > 0) {
    if (into.count == 0 || later.min < into.min) into.min = later.min, into.min_x = later.min_x;
    if (into.count == 0 || later.max > into.max) into.max = later.max, into.max_x = later.max_x;
  }
  into.last_x = later.last_x;
  into.sum += later.sum;
  into.count += later.count;
  into.gaps += later.gaps;
}

// The weighted least-squares line through the neighbours of bin i, at bin i.
double fitted(const std::vector<DownsampledCurve::Bin>& bins, int64_t i, int64_t reach, double sigma) {
  double w0 = 0, w1 = 0, w2 = 0, y0 = 0, y1 = 0;
  const int64_t end = std::min<int64_t>(i + reach + 1, static_cast<int64_t>(bins.size()));
  for (int64_t j = std::max<int64_t>(i - reach, 0); j < end; ++j) {
    if (bins[j].count == 0) continue;
    const double x = static_cast<double>(j - i), y = bins[j].mean();
    const double weight = std::exp(-0.5 * x * x / (sigma * sigma));
    w0 += weight, w1 += weight * x, w2 += weight * x * x, y0 += weight * y, y1 += weight * x * y;
  }
  const double det = w0 * w2 - w1 * w1;
  return det > 1e-9 * w0 * w0 ? (w2 * y0 - w1 * y1) / det : y0 / w0;
}

}  // namespace

void DownsampledCurve::add(int64_t x, double y) {
  const Bin point = bin_of(x, y);
  ++points_;
  if (point.count > 0) {
    ++finite_;
    last_ = y;
  }
  if (!bins_.empty() && bins_.back().first_x / width_ == x / width_) return merge(bins_.back(), point);
  bins_.push_back(point);
  while (static_cast<int64_t>(bins_.size()) > capacity_) halve();
}

void DownsampledCurve::halve() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t i = 1; i < bins_.size(); ++i) {
    if (bins_[kept].first_x / width_ == bins_[i].first_x / width_) {
      merge(bins_[kept], bins_[i]);
    } else {
      bins_[++kept] = bins_[i];
    }
  }
  bins_.resize(kept + 1);
}

std::vector<double> smoothed(const std::vector<DownsampledCurve::Bin>& bins, double sigma) {
  std::vector<double> result(bins.size(), std::numeric_limits<double>::quiet_NaN());
  const auto reach = static_cast<int64_t>(std::ceil(3 * sigma));
  for (size_t i = 0; i < bins.size(); ++i) {
    if (bins[i].count > 0) result[i] = fitted(bins, static_cast<int64_t>(i), reach, sigma);
  }
  return result;
}

}  // namespace trireme
