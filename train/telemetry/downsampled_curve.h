// DownsampledCurve: a curve of any length in bounded memory. Neighbouring points share a bin once there are too many; each bin
// keeps its extremes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace trireme {

class DownsampledCurve {
 public:
  struct Bin {
    int64_t first_x, last_x;  // of all points in it
    int64_t min_x, max_x;     // where the finite extremes are
    double min, max, sum;     // of the finite points
    int64_t count, gaps;      // finite points, and the others
    double mean() const { return sum / static_cast<double>(count); }
  };

  explicit DownsampledCurve(int64_t capacity = 1024) : capacity_(capacity) {}  // most bins

  void add(int64_t x, double y);  // x >= 0 and never decreasing; a y that is not finite leaves a gap

  const std::vector<Bin>& bins() const { return bins_; }
  int64_t width() const { return width_; }            // a power of 2: points with the same x / width share a bin
  bool empty() const { return finite_ == 0; }         // no finite point
  int64_t gaps() const { return points_ - finite_; }  // points that are not finite
  double last() const { return last_; }               // the last finite point; NaN when empty

 private:
  void halve();

  int64_t capacity_, width_ = 1, points_ = 0, finite_ = 0;
  double last_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<Bin> bins_;
};

// The bins' means, smoothed: a line fitted around each by weights that fall off like a Gaussian of `sigma` bins, which follows
// slopes to the very ends. NaN where a bin has no finite point.
std::vector<double> smoothed(const std::vector<DownsampledCurve::Bin>& bins, double sigma);

}  // namespace trireme
