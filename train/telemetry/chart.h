// A chart of DownsampledCurves over steps, as HTML with an inline SVG that stretches to whatever room it gets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/telemetry/downsampled_curve.h"

namespace trireme {

std::string html_escaped(std::string_view text);

enum class Look { line, noisy, points };  // noisy: light raw line and a smoothed one over it

struct Curve {
  std::string name;   // in the legend and in the readout
  std::string color;  // a CSS class: "train", "val"
  Look look = Look::line;
  const DownsampledCurve* series;
};

struct Chart {
  std::string title, unit;
  bool from_zero = false;  // the vertical axis begins at 0
  std::vector<Curve> curves;
};

// The steps run from 0 to last_step. Gaps stay gaps, counted and marked on the axis. Spikes that would flatten the picture leave
// it: each is marked on the frame, and the extreme is named.
std::string render_chart(const Chart& chart, int64_t last_step);

}  // namespace trireme
