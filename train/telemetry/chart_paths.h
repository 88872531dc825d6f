// SVG paths of a curve's points, in fixed units. A gap begins a path anew.
#pragma once

#include <string>
#include <vector>

#include "train/telemetry/downsampled_curve.h"

namespace trireme {

inline constexpr double kChartWidth = 1000, kChartHeight = 400;  // of the SVG's own units

struct ChartRange {
  double low, high;
};

// From data to the SVG's units.
struct ChartScale {
  ChartRange x, y;
  double across(double value) const { return (value - x.low) / (x.high - x.low) * kChartWidth; }
  double down(double value) const { return (1 - (value - y.low) / (y.high - y.low)) * kChartHeight; }
};

// Appends a command of a path: M and L with their point.
void append_point(std::string& path, char command, double x, double y);

// Each bin's extremes in their order: what a pixel column of the full curve would cover.
std::string raw_path(const DownsampledCurve& series, const ChartScale& scale);
// A line through one value for each bin, in its middle.
std::string value_path(const DownsampledCurve& series, const std::vector<double>& values, const ChartScale& scale);
// A dot at each bin's mean.
std::string dots_path(const DownsampledCurve& series, const ChartScale& scale);
// A mark on the axis for each bin with gaps.
std::string gap_marks(const DownsampledCurve& series, const ChartScale& scale);
// A mark on the frame for each bin with points above or below the picture.
std::string beyond_marks(const DownsampledCurve& series, const ChartScale& scale);

}  // namespace trireme
