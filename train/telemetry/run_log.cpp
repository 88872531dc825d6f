#include "train/telemetry/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/clock.h"
#include "base/replace_file.h"
#include "train/telemetry/report.h"

namespace trireme {

struct RunLog::State {
  State(const std::string& directory, const std::string& title, int64_t total_steps, int64_t resume_step, int64_t log_every);
  ~State() { close(text); }

  void write_text(std::string_view line);
  void check(bool written);
  double eta() const;
  void redraw();
  std::string plain_line() const;
  std::vector<std::string> details() const;

  const int64_t total, log_every;
  ReportData earlier;  // of the steps before a resume; the report's first data
  MetricsFile metrics;
  Report report;
  int text = -1;  // log.txt

  std::mutex mutex;  // of what follows
  StepRecord now;
  int64_t first_step = 0;  // of this process
  Clock::time_point first_time;
  Throttle throttle{kRedrawPeriod};
  Progress progress;  // at the bottom of the terminal
  StatusLine line;
  bool told = false;  // that the disk refuses
  bool finished = false;
};

namespace {

MetricsReader reader_into(ReportData& data) {
  return {.step = [&data](const StepRecord& record) { data.add(record); },
          .eval = [&data](const EvalRecord& record) { data.add(record); },
          .choices = [&data](const ChoicesRecord& record) { data.add(record); }};
}

ReportData empty_report(const std::string& title, int64_t total_steps) {
  ReportData data;
  data.title = title;
  data.total_steps = total_steps;
  return data;
}

std::string of_total(int64_t step, int64_t total) {
  const std::string whole = std::to_string(total), done = std::to_string(step);
  return std::string(whole.size() - std::min(whole.size(), done.size()), ' ') + done + "/" + whole;
}

std::string result_of(const EvalRecord& record) {
  const std::string bits = std::isfinite(record.bits_per_byte) ? ", " + fixed(record.bits_per_byte, 4) + " bits per byte" : "";
  return "validation loss " + fixed(record.val_loss, 4) + bits;
}

}  // namespace

RunLog::State::State(const std::string& directory, const std::string& title, int64_t total_steps, int64_t resume_step,
                     int64_t log_every)
    : total(total_steps),
      log_every(log_every),
      earlier(empty_report(title, total_steps)),
      metrics(directory, resume_step, reader_into(earlier)),
      report(directory, std::move(earlier)) {
  const std::string path = directory + "/log.txt";
  text = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(text >= 0, trireme::text("cannot write ", path));
  progress = {.label = title, .done = std::max<int64_t>(resume_step, 0), .total = total_steps, .details = {}};
}

void RunLog::State::check(bool written) {
  if (!written && !told) complain("warning: the run directory cannot be written (disk full?); the run goes on without its log");
  told = told || !written;
}

void RunLog::State::write_text(std::string_view line) { check(write_all(text, utc_now() + "  " + std::string(line) + "\n")); }

double RunLog::State::eta() const {
  const auto left = static_cast<double>(std::max<int64_t>(total - now.step, 0));
  if (now.step <= first_step) return left * now.step_ms / 1000;
  return left * seconds_since(first_time) / static_cast<double>(now.step - first_step);
}

std::vector<std::string> RunLog::State::details() const {
  std::vector<std::string> fields{of_total(now.step, total), "loss " + fixed(now.loss, 4)};
  const DownsampledCurve& val = report.data().val_loss;
  if (!val.empty()) fields.push_back("val " + fixed(val.last(), 4));
  fields.push_back(human_count(now.tokens_per_second) + " tok/s");
  if (now.step < total) fields.push_back("ETA " + human_seconds(eta()));
  if (std::isfinite(now.mfu)) fields.push_back("MFU " + fixed(100 * now.mfu, 1) + "%");
  return fields;
}

std::string RunLog::State::plain_line() const {
  std::string line = "step " + of_total(now.step, total) + "  loss " + fixed(now.loss, 4) + "  norm " +
                     significant(now.grad_norm, 4) + "  lr " + significant(now.lr, 4) + "  " + human_seconds(now.step_ms / 1000) +
                     "  " + human_count(now.tokens_per_second) + " tok/s";
  if (std::isfinite(now.mfu)) line += "  mfu " + fixed(100 * now.mfu, 1) + "%";
  line += "  stall " + human_seconds(now.data_ms / 1000);
  return line + (now.step < total ? "  eta " + human_seconds(eta()) : "");
}

void RunLog::State::redraw() {
  if (now.step == 0 || finished) return;
  progress.done = now.step;
  progress.details = details();
  line.draw(progress);
}

RunLog::RunLog(const std::string& directory, const std::string& title, int64_t total_steps, int64_t resume_step, int64_t log_every)
    : state_(std::make_unique<State>(directory, title, total_steps, resume_step, std::max<int64_t>(log_every, 1))) {
  const int64_t dropped = state_->metrics.dropped();
  if (dropped == 0) return;
  note("metrics.jsonl: " + std::to_string(dropped) + " torn lines or lines after step " + std::to_string(resume_step) + " dropped");
}

RunLog::~RunLog() { state_->line.leave(); }

void RunLog::facts(std::vector<std::pair<std::string, std::string>> rows) { state_->report.facts(std::move(rows)); }

void RunLog::step(const StepRecord& record) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.now = record;
  const bool first = s.first_step == 0, last = record.step >= s.total;
  if (first) {
    s.first_step = record.step;
    s.first_time = Clock::now();
  }
  s.check(s.metrics.append(json_line(record)));
  s.report.add(record, s.eta());
  if (first || last || record.step % s.log_every == 0) {
    const std::string line = s.plain_line();
    s.write_text(line);
    if (!s.line.possible()) say(line);
  }
  if (s.throttle.due(Clock::now()) || last) s.redraw();
}

void RunLog::eval(const EvalRecord& record) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.check(s.metrics.append(json_line(record)));
    s.report.add(record);
  }
  note("eval " + of_total(record.step, s.total) + "  " + result_of(record) + "  (" +
       human_count(static_cast<double>(record.val_tokens)) + " tokens, " + human_seconds(record.seconds) + ")");
}

void RunLog::choices(const ChoicesRecord& record, std::string_view told) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.check(s.metrics.append(json_line(record)));
    s.report.add(record);
  }
  note("eval " + of_total(record.step, s.total) + "  " + record.name + " " + std::string(told) + "  (" +
       human_count(static_cast<double>(record.questions)) + " questions, " + human_seconds(record.seconds) + ")");
}

void RunLog::note(std::string_view line) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  say(line);
  s.write_text(line);
  s.redraw();
}

void RunLog::saved(const SaveRecord& record) {
  const auto size = static_cast<double>(record.bytes);
  const double stall = record.stall_ms / 1000;
  if (!record.in_memory)
    note("saved " + of_total(record.step, state_->total) + "  " + human_bytes(size) + " in " + human_seconds(record.seconds) +
         (record.write_seconds > 0 ? ", " + human_bytes(size / record.write_seconds) + "/s" : "") + ", steps waited " +
         human_seconds(stall));
  const std::lock_guard lock(state_->mutex);
  state_->check(state_->metrics.append(json_line(record)));
}

// Without the mutex: a disk may take its time, and steps are logged meanwhile.
void RunLog::sync() { state_->metrics.sync(); }

void RunLog::finish() {
  State& s = *state_;
  s.report.finish();
  const ReportData& data = s.report.data();
  const std::string best =
      data.best.step > 0 ? ", best " + result_of(data.best) + " at step " + std::to_string(data.best.step) : "";
  {
    const std::lock_guard lock(s.mutex);
    s.finished = true;
    s.line.erase();
    s.check(s.metrics.sync());
  }
  note((data.step < s.total ? "stopped after " : "finished ") + std::to_string(data.step) + " steps, " +
       human_count(static_cast<double>(data.tokens)) + " tokens in " + human_seconds(data.elapsed) + ": loss " +
       fixed(data.loss.last(), 4) + best + "; " + s.report.path());
}

}  // namespace trireme
