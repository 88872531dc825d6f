#include "train/telemetry/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/number_format.h"
#include "train/telemetry/axis_ticks.h"
#include "train/telemetry/chart_paths.h"

namespace trireme {

namespace {

constexpr int kDigits = 5;  // of values in the readout

// The value that `rank` others lie below.
double ranked(std::vector<double>& values, size_t rank) {
  const auto at = values.begin() + static_cast<int64_t>(rank);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The range that the curves usually cover, with their usual noise: the first steps of a long run and spikes may leave the picture.
ChartRange vertical_range(const Chart& chart) {
  std::vector<double> means, noise;
  ChartRange all{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Curve& curve : chart.curves) {
    for (const DownsampledCurve::Bin& bin : curve.series->bins()) {
      if (bin.count == 0) continue;
      means.push_back(bin.mean());
      noise.push_back(bin.max - bin.min);
      all = {std::min(all.low, bin.min), std::max(all.high, bin.max)};
    }
  }
  if (means.empty()) return {0, 1};
  const size_t count = means.size(), rare = count / 50;
  const double low = ranked(means, rare), high = ranked(means, count - 1 - rare);
  const double span = high - low, usual_noise = 1.5 * ranked(noise, count / 4);
  const double slack = std::max(0.35 * span, std::min(usual_noise, std::max(span, 0.25 * std::abs(high))));
  ChartRange range{std::max(all.low, low - slack), std::min(all.high, high + slack)};
  if (chart.from_zero) range.low = std::min(range.low, 0.0);
  double room = 0.05 * (range.high - range.low);
  if (room <= 1e-9 * std::abs(range.high)) room = range.high != 0 ? 0.1 * std::abs(range.high) : 0.5;
  return {range.low - (chart.from_zero && range.low == 0 ? 0 : room), range.high + room};
}

std::vector<double> display_values(const Curve& curve) {
  const auto& bins = curve.series->bins();
  if (curve.look == Look::noisy && bins.size() >= 20) return smoothed(bins, std::max(2.0, static_cast<double>(bins.size()) / 80));
  std::vector<double> means;
  for (const DownsampledCurve::Bin& bin : bins)
    means.push_back(bin.count > 0 ? bin.mean() : std::numeric_limits<double>::quiet_NaN());
  return means;
}

std::string path_element(const std::string& classes, const std::string& path) {
  return path.empty() ? "" : "<path class=\"" + classes + "\" d=\"" + path + "\"/>\n";
}

std::string curve_paths(const Curve& curve, const std::vector<double>& values, const ChartScale& scale) {
  const DownsampledCurve& series = *curve.series;
  const std::string line = "line " + curve.color, raw = "raw " + curve.color, dots = "dots " + curve.color;
  switch (curve.look) {
    case Look::line:
      return path_element(line, raw_path(series, scale));
    case Look::noisy:
      return path_element(raw, raw_path(series, scale)) + path_element(line, value_path(series, values, scale));
    case Look::points:
      return path_element(line, value_path(series, values, scale)) + path_element(dots, dots_path(series, scale));
  }
  return {};
}

std::string percent(double part) { return fixed(100 * part, 2) + "%"; }

std::string grid_lines(const std::vector<double>& x, const std::vector<double>& y, const ChartScale& scale) {
  std::string lines;
  for (const double value : y) append_point(lines, 'M', 0, scale.down(value)), lines += "h1000";
  for (const double value : x) append_point(lines, 'M', scale.across(value), kChartHeight), lines += "v6";
  return path_element("grid", lines);
}

std::string axis_labels(const std::vector<double>& x, const std::vector<double>& y, const ChartScale& scale) {
  std::string labels;
  const std::vector<std::string> across = tick_labels(x), down = tick_labels(y);
  for (size_t i = 0; i < y.size(); ++i) {
    labels += "<span class=\"y\" style=\"top:" + percent(scale.down(y[i]) / kChartHeight) + "\">" + down[i] + "</span>\n";
  }
  for (size_t i = 0; i < x.size(); ++i) {
    labels += "<span class=\"x\" style=\"left:" + percent(scale.across(x[i]) / kChartWidth) + "\">" + (x[i] == 0 ? "step " : "") +
              across[i] + "</span>\n";
  }
  return labels;
}

std::string json_number(double value) { return std::isfinite(value) ? significant(value, kDigits) : "null"; }

// Data for the page's script, which shows the values at a step.
std::string readout_data(const Chart& chart, const std::vector<std::vector<double>>& values, const ChartScale& scale) {
  std::string json = "{\"x\":[" + json_number(scale.x.low) + "," + json_number(scale.x.high) + "],\"y\":[" +
                     significant(scale.y.low, 9) + "," + significant(scale.y.high, 9) + "],\"curves\":[";
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    std::string x, y;
    for (size_t j = 0; j < values[i].size(); ++j) {
      x += (j > 0 ? "," : "") + std::to_string(curve.series->bins()[j].last_x);
      y += (j > 0 ? "," : "") + json_number(values[i][j]);
    }
    json += (i > 0 ? "," : "") + ("{\"x\":[" + x + "],\"y\":[" + y + "]}");
  }
  return json + "]}";
}

// As the page's script prints them.
std::string readable(double value) {
  const double size = std::abs(value);
  return size >= 1e4 ? human_count(value) : significant(value, size < 1e-2 ? 3 : 4);
}

// Names the curves if there are several, with their last values.
std::string legend(const Chart& chart) {
  std::string html;
  for (const Curve& curve : chart.curves) {
    const std::string name = chart.curves.size() > 1 ? "<i></i>" + html_escaped(curve.name) + " " : "";
    html += "<span class=\"key " + curve.color + "\">" + name + "<b>" +
            (curve.series->empty() ? "&ndash;" : readable(curve.series->last())) + "</b></span>\n";
  }
  return html;
}

std::string gap_note(const Chart& chart) {
  int64_t gaps = 0;
  for (const Curve& curve : chart.curves) gaps += curve.series->gaps();
  return gaps == 0 ? "" : "<span class=\"bad\">" + std::to_string(gaps) + " not finite</span>\n";
}

// Names the extreme that the picture leaves out; its place is marked on the frame.
std::string beyond_note(const Chart& chart, const ChartRange& range) {
  double highest = range.high, lowest = range.low;
  for (const Curve& curve : chart.curves)
    for (const DownsampledCurve::Bin& bin : curve.series->bins())
      if (bin.count > 0) highest = std::max(highest, bin.max), lowest = std::min(lowest, bin.min);
  const auto note = [](const std::string& words) { return "<span class=\"beyond\">" + words + "</span>\n"; };
  return (highest > range.high ? note("up to " + readable(highest)) : "") +
         (lowest < range.low ? note("down to " + readable(lowest)) : "");
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string render_chart(const Chart& chart, int64_t last_step) {
  const ChartScale scale{.x = {0, static_cast<double>(std::max<int64_t>(last_step, 1))}, .y = vertical_range(chart)};
  const bool empty =
      std::all_of(chart.curves.begin(), chart.curves.end(), [](const Curve& curve) { return curve.series->empty(); });
  std::vector<double> x = nice_ticks(scale.x.low, scale.x.high, 5), y = nice_ticks(scale.y.low, scale.y.high, 4);
  std::erase_if(x, [](double step) { return step != std::round(step); });
  if (empty) y.clear();  // there is no scale yet
  std::string paths;
  std::vector<std::vector<double>> values;
  for (const Curve& curve : chart.curves) {
    values.push_back(display_values(curve));
    paths += curve_paths(curve, values.back(), scale) + path_element("gaps", gap_marks(*curve.series, scale)) +
             path_element("beyond", beyond_marks(*curve.series, scale));
  }
  return "<figure class=\"chart\">\n<figcaption><h2>" + html_escaped(chart.title) + "</h2><span class=\"unit\">" +
         html_escaped(chart.unit) + "</span>\n<span class=\"keys\">\n" + gap_note(chart) + beyond_note(chart, scale.y) +
         legend(chart) +
         "</span></figcaption>\n<div class=\"plot\">\n<svg viewBox=\"0 0 1000 400\" preserveAspectRatio=\"none\" role=\"img\" "
         "aria-label=\"" +
         html_escaped(chart.title) + " over steps\">\n" + grid_lines(x, y, scale) + paths + "</svg>\n" + axis_labels(x, y, scale) +
         "<script type=\"application/json\">" + readout_data(chart, values, scale) + "</script>\n</div>\n</figure>\n";
}

}  // namespace trireme
