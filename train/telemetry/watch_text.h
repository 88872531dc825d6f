// A run as lines of text, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "train/telemetry/run_picture.h"

namespace trireme {

struct TextView {
  int width = 80, height = 24;  // columns and lines, at most
  bool unicode = true;          // blocks; otherwise ASCII
};

// Progress, loss, speed, parts of a step, ranks, checkpoints and the last events. Foreign text is printable.
std::vector<std::string> watch_lines(const RunPicture& run, const TextView& view);

// The means of a curve's bins as a row of blocks, `width` of them at most.
std::string sparkline(const DownsampledCurve& curve, int width, bool unicode);

}  // namespace trireme
