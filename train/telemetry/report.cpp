#include "train/telemetry/report.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/clock.h"
#include "base/file.h"
#include "base/replace_file.h"
#include "train/telemetry/chart.h"
#include "train/telemetry/log.h"
#include "train/telemetry/report_page.h"

namespace trireme {

namespace {

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::running:
      return "running";
    case RunStatus::finished:
      return "finished";
    case RunStatus::stopped:
      return "stopped";
  }
  return "";
}

// 1234567 -> "1,234,567"
std::string with_commas(int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string figure(std::string_view name, const std::string& value, const std::string& below = "") {
  return "<div><dt>" + std::string(name) + "</dt><dd>" + value + "</dd><dd class=\"below\">" + below + "</dd></div>\n";
}

std::string figures(const ReportData& data) {
  const bool started = data.step > 0, running = data.status == RunStatus::running;
  const bool beyond = data.step > data.total_steps;  // a run that was continued with a smaller train.steps
  std::string html = figure("step", with_commas(data.step), (beyond ? "train.steps is " : "of ") + with_commas(data.total_steps));
  html += figure("time", human_seconds(data.elapsed), started && running ? human_seconds(data.eta) + " left" : "");
  html += figure("loss", data.loss.empty() ? "&ndash;" : fixed(data.loss.last(), 4));
  if (data.best.step > 0) {
    const std::string where = "step " + with_commas(data.best.step);
    html += figure("best validation", fixed(data.best.val_loss, 4), where);
    if (std::isfinite(data.best.bits_per_byte)) html += figure("bits per byte", fixed(data.best.bits_per_byte, 4), where);
  }
  html +=
      figure("tokens", human_count(static_cast<double>(data.tokens)), started ? human_count(data.tokens_per_second) + "/s" : "");
  if (started && std::isfinite(data.mfu)) html += figure("MFU", fixed(100 * data.mfu, 1) + "%", "of the peak rate");
  return "<dl class=\"figures\">\n" + html + "</dl>\n";
}

std::string charts(const ReportData& data) {
  const Curve train{.name = "train", .color = "train", .look = Look::noisy, .series = &data.loss};
  const Curve val{.name = "validation", .color = "val", .look = Look::points, .series = &data.val_loss};
  std::vector<Chart> list{{.title = "Loss", .unit = "nats per token", .curves = {train}}};
  if (!data.val_loss.bins().empty()) list.front().curves.push_back(val);
  if (!data.bits_per_byte.empty()) {
    const Curve bits{.name = "validation", .color = "val", .look = Look::points, .series = &data.bits_per_byte};
    list.push_back({.title = "Bits per byte", .unit = "held-out text", .curves = {bits}});
  }
  for (const auto& [name, shares] : data.choices) {
    const Curve accuracy{.name = "acc", .color = "train", .look = Look::points, .series = &shares.accuracy};
    const Curve normalised{.name = "acc_norm", .color = "val", .look = Look::points, .series = &shares.normalised};
    list.push_back({.title = name, .unit = "share of questions", .curves = {accuracy, normalised}});
  }
  const Curve lr{.name = "train", .color = "train", .look = Look::line, .series = &data.lr};
  const Curve speed{.name = "train", .color = "train", .look = Look::noisy, .series = &data.speed};
  const Curve norm{.name = "train", .color = "train", .look = Look::noisy, .series = &data.grad_norm};
  list.push_back({.title = "Learning rate", .unit = "", .from_zero = true, .curves = {lr}});
  list.push_back({.title = "Speed", .unit = "tokens per second", .from_zero = true, .curves = {speed}});
  list.push_back({.title = "Gradient norm", .unit = "before clipping", .from_zero = true, .curves = {norm}});
  const Curve mfu{.name = "train", .color = "train", .look = Look::noisy, .series = &data.mfu_curve};
  if (!data.mfu_curve.empty()) list.push_back({.title = "MFU", .unit = "of the peak rate", .from_zero = true, .curves = {mfu}});
  std::string html;
  for (const Chart& chart : list) html += render_chart(chart, data.step);
  return "<div class=\"charts\">\n" + html + "</div>\n";
}

std::string facts_table(const ReportData& data) {
  if (data.facts.empty()) return "";
  std::string rows;
  for (const auto& [name, value] : data.facts) {
    rows += "<tr><th>" + html_escaped(name) + "</th><td>" + html_escaped(value) + "</td></tr>\n";
  }
  return "<section>\n<table class=\"facts\"><tbody>\n" + rows + "</tbody></table>\n</section>\n";
}

// Shares of the steps' time, as a bar with its legend.
std::string parts_bar(const ReportData& data) {
  std::vector<PartTime> sorted = data.parts;
  std::ranges::stable_sort(sorted, std::greater(), &PartTime::ms);
  double all = 0;
  for (const PartTime& part : sorted) all += part.ms;
  if (all <= 0) return "";
  constexpr size_t kColors = 8;
  std::string bar, legend;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string share = fixed(100 * sorted[i].ms / all, 1), color = "part" + std::to_string(std::min(i, kColors - 1));
    const bool waits = sorted[i].name.starts_with("wait_");
    const std::string name = html_escaped(waits ? "waiting for " + sorted[i].name.substr(5) : sorted[i].name);
    bar += "<i class=\"" + color + "\" style=\"width:" + share + "%\" title=\"" + name + ", " + share + "%\"></i>\n";
    legend += "<span><i class=\"swatch " + color + "\"></i>" + name + " <b>" + share + "%</b></span>\n";
  }
  return "<section>\n<h2>Time of steps by part</h2>\n<div class=\"stack\">\n" + bar + "</div>\n<div class=\"shares\">\n" + legend +
         "</div>\n</section>\n";
}

std::string tables(const ReportData& data) {
  std::string html;
  for (const ReportSection& section : data.sections) {
    std::string rows;
    for (const std::vector<std::string>& cells : section.rows) {
      rows += "<tr>";
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string span = cells.size() == 1 ? " colspan=\"3\"" : "", tag = i == 0 && cells.size() > 1 ? "th" : "td";
        rows += "<" + tag + span + ">" + html_escaped(cells[i]) + "</" + tag + ">";
      }
      rows += "</tr>\n";
    }
    html += "<section>\n<h2>" + html_escaped(section.title) + "</h2>\n<table class=\"facts\"><tbody>\n" + rows +
            "</tbody></table>\n</section>\n";
  }
  return html;
}

std::string config_section(const ReportData& data) {
  const std::string config = data.config.empty() ? "" : "<pre>" + html_escaped(data.config) + "</pre>\n";
  return data.handed_on ? "<section class=\"config\">\n<h2>config.yaml</h2>\n" + config + "</section>\n"
                        : "<section>\n<details><summary>config.yaml</summary>\n" + config + "</details>\n</section>\n";
}

std::string head(const ReportData& data) {
  const bool running = data.status == RunStatus::running && !data.handed_on;
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         std::string(running ? "<meta http-equiv=\"refresh\" content=\"10\">\n" : "") + "<title>" + html_escaped(data.title) +
         " &middot; " + std::string(name_of(data.status)) + "</title>\n<style>" + std::string(kReportStyle) + "</style>\n</head>\n";
}

std::string banner(const ReportData& data) {
  const double part = data.total_steps > 0 ? static_cast<double>(data.step) / static_cast<double>(data.total_steps) : 0;
  const std::string status(name_of(data.status));
  return "<header>\n<h1>" + html_escaped(data.title) + "</h1>\n<span class=\"status " + status + "\" data-updated=\"" +
         html_escaped(data.updated) + "\">" + status +
         "</span>\n</header>\n<div class=\"bar\"><i style=\"width:" + fixed(100 * std::min(part, 1.0), 2) + "%\"></i></div>\n";
}

}  // namespace

void ReportData::add(const StepRecord& record) {
  step = record.step;
  tokens = record.tokens;
  mfu = record.mfu;
  tokens_per_second = record.tokens_per_second;
  if (std::isfinite(record.step_ms)) elapsed += record.step_ms / 1000;
  loss.add(record.step, record.loss);
  grad_norm.add(record.step, record.grad_norm);
  lr.add(record.step, record.lr);
  speed.add(record.step, record.tokens_per_second);
}

void ReportData::add(const EvalRecord& record) {
  if (std::isfinite(record.seconds)) elapsed += record.seconds;
  if (std::isfinite(record.val_loss) && (best.step == 0 || record.val_loss < best.val_loss)) best = record;
  val_loss.add(record.step, record.val_loss);
  if (!std::isnan(record.bits_per_byte)) bits_per_byte.add(record.step, record.bits_per_byte);
}

void ReportData::add(const ChoicesRecord& record) {
  if (std::isfinite(record.seconds)) elapsed += record.seconds;
  choices[record.name].accuracy.add(record.step, record.accuracy);
  choices[record.name].normalised.add(record.step, record.normalised);
}

std::string render_report(const ReportData& data) {
  const std::string source = data.handed_on ? "metrics.jsonl of the run" : "metrics.jsonl, next to this page,";
  return head(data) + "<body>\n<main>\n" + banner(data) + figures(data) + charts(data) + parts_bar(data) + tables(data) +
         facts_table(data) + config_section(data) + "<footer>Written by Trireme, " + html_escaped(data.updated) + ". " + source +
         " has every step.</footer>\n</main>\n<script>" + std::string(kReportScript) + "</script>\n</body>\n</html>\n";
}

Report::Report(std::string directory, ReportData start, std::chrono::milliseconds period)
    : directory_(std::move(directory)), period_(period), data_(std::move(start)) {
  write();
  thread_ = std::jthread([this](std::stop_token stop) { refresh(stop); });
}

Report::~Report() { finish(); }

void Report::facts(std::vector<std::pair<std::string, std::string>> rows) {
  const std::lock_guard lock(mutex_);
  data_.facts = std::move(rows);
  changed_ = true;
}

void Report::add(const StepRecord& record, const StepRecord& usual, double eta) {
  const std::lock_guard lock(mutex_);
  data_.add(record);
  data_.mfu = usual.mfu;
  data_.tokens_per_second = usual.tokens_per_second;
  data_.eta = eta;
  changed_ = true;
}

void Report::add(const EvalRecord& record) {
  const std::lock_guard lock(mutex_);
  data_.add(record);
  changed_ = true;
}

void Report::add(const ChoicesRecord& record) {
  const std::lock_guard lock(mutex_);
  data_.add(record);
  changed_ = true;
}

void Report::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  data_.status = data_.step < data_.total_steps ? RunStatus::stopped : RunStatus::finished;
  write();
}

void Report::refresh(std::stop_token stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, period_, [] { return false; });  // only a stop ends it early
      if (stop.stop_requested() || !changed_) continue;
    }
    write();
  }
}

void Report::write() {
  ReportData copy;
  {
    const std::lock_guard lock(mutex_);
    if (data_.config.empty()) data_.config = text_of_file(directory_ + "/config.yaml");
    data_.updated = utc_now();
    changed_ = false;
    copy = data_;
  }
  const bool fine = replace_file(path(), render_report(copy));
  if (!fine && !refused_) complain("warning: cannot write " + path() + "; the run continues");
  refused_ = !fine;
}

}  // namespace trireme
