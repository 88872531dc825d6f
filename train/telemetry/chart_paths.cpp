#include "train/telemetry/chart_paths.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace trireme {

namespace {

// A path that starts anew after every gap.
class Pen {
 public:
  explicit Pen(const ChartScale& scale) : scale_(scale) {}
  void to(double x, double y) {
    append_point(path_, down_ ? 'L' : 'M', scale_.across(x), scale_.down(y));
    if (!down_) path_ += "h0";  // a point between two gaps shows as a dot
    down_ = true;
  }
  void lift() { down_ = false; }
  const std::string& path() const { return path_; }

 private:
  const ChartScale& scale_;
  std::string path_;
  bool down_ = false;
};

double middle(const DownsampledCurve::Bin& bin) { return 0.5 * static_cast<double>(bin.first_x + bin.last_x); }

}  // namespace

void append_point(std::string& path, char command, double x, double y) {
  std::array<char, 32> buffer;
  path += command;
  const double far = 4 * kChartHeight;  // what lies further outside the picture is cut off anyway
  path.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x, std::chars_format::fixed, 1).ptr);
  path += ' ';
  y = std::clamp(y, -far, far);
  path.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), y, std::chars_format::fixed, 1).ptr);
}

std::string raw_path(const DownsampledCurve& series, const ChartScale& scale) {
  Pen pen(scale);
  for (const DownsampledCurve::Bin& bin : series.bins()) {
    if (bin.count > 0) {
      const bool min_first = bin.min_x <= bin.max_x;
      if (bin.count > 1) pen.to(static_cast<double>(min_first ? bin.min_x : bin.max_x), min_first ? bin.min : bin.max);
      pen.to(static_cast<double>(min_first ? bin.max_x : bin.min_x), min_first ? bin.max : bin.min);
    }
    if (bin.gaps > 0) pen.lift();
  }
  return pen.path();
}

std::string value_path(const DownsampledCurve& series, const std::vector<double>& values, const ChartScale& scale) {
  Pen pen(scale);
  for (size_t i = 0; i < values.size(); ++i) {
    const DownsampledCurve::Bin& bin = series.bins()[i];
    if (bin.count > 0) pen.to(middle(bin), values[i]);
    if (bin.gaps > 0) pen.lift();
  }
  return pen.path();
}

std::string dots_path(const DownsampledCurve& series, const ChartScale& scale) {
  Pen pen(scale);
  for (const DownsampledCurve::Bin& bin : series.bins()) {
    if (bin.count > 0) pen.to(middle(bin), bin.mean());
    pen.lift();
  }
  return pen.path();
}

std::string gap_marks(const DownsampledCurve& series, const ChartScale& scale) {
  std::string path;
  for (const DownsampledCurve::Bin& bin : series.bins()) {
    if (bin.gaps == 0) continue;
    append_point(path, 'M', scale.across(middle(bin)), kChartHeight);
    path += "v-14";
  }
  return path;
}

std::string beyond_marks(const DownsampledCurve& series, const ChartScale& scale) {
  std::string path;
  const auto mark = [&](int64_t x, bool above) {
    append_point(path, 'M', scale.across(static_cast<double>(x)), above ? 0 : kChartHeight);
    path += above ? "v12" : "v-12";
  };
  for (const DownsampledCurve::Bin& bin : series.bins()) {
    if (bin.count > 0 && bin.max > scale.y.high) mark(bin.max_x, true);
    if (bin.count > 0 && bin.min < scale.y.low) mark(bin.min_x, false);
  }
  return path;
}

}  // namespace trireme
