#include "train/telemetry/watch_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/median.h"
#include "base/number_format.h"
#include "base/printable.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr int kLabel = 12, kLeastSpark = 8, kMostSpark = 48;
constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kLetters{"_", ".", "-", "=", "+", "*", "#", "@"};

int shown_columns(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut_to(std::string_view text, int width) {
  size_t end = 0;
  for (int seen = 0; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && seen++ == width) break;
  return std::string(text.substr(0, end));
}

class WatchText {
 public:
  WatchText(const RunPicture& run, const TextView& view) : run_(run), view_(view) {}

  std::vector<std::string> lines() {
    head();
    progress();
    curves();
    parts();
    ranks();
    machine();
    checkpoints();
    events();
    if (std::ssize(lines_) > view_.height) lines_.resize(static_cast<size_t>(std::max(view_.height, 1)));
    return std::move(lines_);
  }

 private:
  void add(const std::string& line) { lines_.push_back(cut_to(printable(line), view_.width)); }
  void row(std::string label, const std::string& words) {
    label.resize(kLabel, ' ');
    add(label + words);
  }
  // A row with a curve that takes the room that is left.
  void row(const std::string& label, const std::string& words, const char* curve) {
    constexpr int kWords = 22;
    std::string padded = words + std::string(static_cast<size_t>(std::max(kWords - shown_columns(words), 2)), ' ');
    const int room = std::min(view_.width - kLabel - shown_columns(padded), kMostSpark);
    row(label, room >= kLeastSpark ? padded + sparkline(run_.history.curve(curve), room, view_.unicode) : words);
  }

  void head() {
    std::string state(name_of(run_.state));
    if (run_.state == RunState::silent) state += " for " + human_seconds(run_.silent());
    if (run_.more) state = "reading its metrics.jsonl";
    add(run_.title + ": " + state + "  (" + run_.directory + ")");
    if (run_.state == RunState::failed || (run_.state == RunState::stopped && !run_.exit.message.empty()))
      add("ended with code " + std::to_string(run_.exit.code) + ", " + run_.exit.cause +
          (run_.exit.message.empty() ? "" : ": " + run_.exit.message));
  }
  void progress() {
    const int64_t step = run_.history.last.step, steps = run_.schedule.steps;
    Progress bar{.label = "step", .done = step, .total = steps, .details = {std::to_string(step)}};
    if (steps > 0) bar.details.front() += "/" + std::to_string(steps);
    const bool runs = run_.state == RunState::running || run_.state == RunState::silent;
    if (runs && steps > step && step > 0) bar.details.push_back("ETA " + human_seconds(run_.eta()));
    bar.details.push_back(human_seconds(run_.elapsed()) + " of steps");
    if (const double goodput = run_.goodput(); std::isfinite(goodput))
      bar.details.push_back("goodput " + fixed(100 * goodput, 1) + "%");
    lines_.push_back(progress_line(bar, view_.width, view_.unicode));
  }
  void curves() {
    const RunHistory& history = run_.history;
    if (history.last.step == 0) return row("loss", "no step so far");
    row("loss", fixed(history.last.loss, 4), "loss");
    if (history.eval.step > 0) {
      row("validation", fixed(history.eval.val_loss, 4), "val_loss");
      std::string best = "best " + fixed(history.best.val_loss, 4) + " at step " + std::to_string(history.best.step);
      if (std::isfinite(history.eval.bits_per_byte)) best += ", now " + fixed(history.eval.bits_per_byte, 4) + " bits per byte";
      if (history.best.step > 0) row("", best);
    }
    row("speed", human_count(history.last.tokens_per_second) + " tok/s", "tokens_per_second");
    if (std::isfinite(history.last.mfu)) row("MFU", fixed(100 * history.last.mfu, 1) + "%", "mfu");
    row("norm", significant(history.last.grad_norm, 4), "grad_norm");
  }
  void parts() {
    std::vector<PartTime> sorted = run_.history.parts;
    double all = 0;
    for (const PartTime& part : sorted) all += part.ms;
    if (all <= 0) return;
    std::ranges::stable_sort(sorted, std::greater(), &PartTime::ms);
    std::string words;
    for (const PartTime& part : sorted)
      if (part.ms >= 0.005 * all) words += (words.empty() ? "" : ", ") + fixed(100 * part.ms / all, 0) + "% " + part.name;
    row("time", human_seconds(run_.history.last.step_ms / 1000) + " a step: " + words);
  }
  void ranks() {
    const std::vector<double>& times = run_.history.busy.last();
    const SlowestRank& slowest = run_.history.slowest;
    std::string words;
    if (times.size() > 1) words = std::to_string(times.size()) + " busy " + human_seconds(median(times) / 1000) + ", ";
    if (slowest.rank < 0) return;
    words += "slowest " + std::to_string(slowest.rank);
    if (slowest.ratio > 1) words += ", +" + fixed(100 * (slowest.ratio - 1), 0) + "% over its peers";
    row("ranks", words);
  }
  void machine() {
    const MachineUse& use = run_.history.machine;
    std::string words;
    const auto part = [&](double value, const std::string& text) {
      if (std::isfinite(value)) words += (words.empty() ? "" : ", ") + text;
    };
    part(use.power_w, significant(use.power_w, 3) + " W");
    part(use.kwh, significant(use.kwh, 3) + " kWh");
    part(use.joules_per_token, significant(use.joules_per_token, 3) + " J a token");
    part(use.cost, fixed(use.cost, 2) + " " + use.currency);
    part(use.projected_cost, fixed(use.projected_cost, 2) + " " + use.currency + " at the end");
    if (!words.empty()) row("energy", words);
  }
  void checkpoints() {
    if (run_.checkpoints.empty()) return row("saved", "no checkpoint on disk");
    const SavedState& last = run_.checkpoints.back();
    std::string words = "step " + std::to_string(last.step);
    if (last.time > 0) words += ", " + human_seconds(std::max(run_.now - last.time, 0.0)) + " ago";
    words += last.problem.empty() ? ", " + human_bytes(static_cast<double>(last.bytes)) : ": " + last.problem;
    const auto broken = std::ranges::count_if(run_.checkpoints, [](const SavedState& saved) { return !saved.problem.empty(); });
    words += "  (" + std::to_string(run_.checkpoints.size()) + " kept" +
             (broken > 0 ? ", " + std::to_string(broken) + " unusable" : "") + ")";
    row("saved", words);
  }
  void events() {
    const auto room = view_.height - std::ssize(lines_) - 2;
    if (run_.history.events.empty() || room <= 0) return;
    add("");
    add("events");
    std::vector<RunEvent> newest(run_.history.events.begin(), run_.history.events.end());
    std::ranges::stable_sort(newest, {}, &RunEvent::step);
    int64_t left = room;
    for (auto event = newest.rbegin(); event != newest.rend() && left > 0; ++event, --left)
      add("  step " + std::to_string(event->step) + "  " + event->kind + "  " + event->words);
  }

  const RunPicture& run_;
  const TextView& view_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string sparkline(const DownsampledCurve& curve, int width, bool unicode) {
  std::vector<double> means;
  const auto& bins = curve.bins();
  const auto columns = std::min<int64_t>(width, std::ssize(bins));
  for (int64_t column = 0; column < columns; ++column) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = column * std::ssize(bins) / columns; i < (column + 1) * std::ssize(bins) / columns; ++i)
      sum += bins[static_cast<size_t>(i)].sum, count += bins[static_cast<size_t>(i)].count;
    means.push_back(count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN());
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means)
    if (std::isfinite(mean)) low = std::min(low, mean), high = std::max(high, mean);
  std::string drawn;
  for (const double mean : means) {
    const double part = high > low ? (mean - low) / (high - low) : 0.5;
    const auto level = std::isfinite(mean) ? static_cast<size_t>(std::clamp(part * 8, 0.0, 7.0)) : 0;
    drawn += !std::isfinite(mean) ? " " : unicode ? kBlocks[level] : kLetters[level];
  }
  return drawn;
}

std::vector<std::string> watch_lines(const RunPicture& run, const TextView& view) { return WatchText(run, view).lines(); }

}  // namespace trireme
