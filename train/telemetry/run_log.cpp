#include "train/telemetry/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "base/replace_file.h"
#include "train/telemetry/gpu_watch.h"
#include "train/telemetry/record_sinks.h"
#include "train/telemetry/report.h"

namespace trireme {

namespace {

constexpr std::chrono::seconds kBusyPeriod{10};  // between plain lines of what the steps wait for

}  // namespace

struct RunLog::State {
  State(const std::string& directory, const std::string& title, const RunSchedule& schedule, const RecordStart& start,
        int64_t log_every);
  ~State() { close(text); }

  MetricsReader earlier_lines();
  void measured(int64_t step, const std::string& part, double seconds);
  void write_text(std::string_view line);
  void check(bool written);
  void record(const RunRecord& record, const std::string& line);
  std::string parts_line() const;
  std::string goodput_line() const;
  std::string energy_line() const { return ledger ? ledger->words(now.step >= total) : ""; }
  StepRecord usual() const;  // the last step, at the speed of a usual one
  double eta() const;
  void redraw();
  std::string plain_line() const;
  std::vector<std::string> details() const;

  const std::string directory;
  const int64_t total, log_every;
  ReportData earlier;  // of the steps before a resume; the report's first data
  TimeLeft left;
  RunStarts starts;
  double step_seconds = 0;                   // of the steps in metrics.jsonl
  std::map<std::string, int64_t> evaluated;  // by part: the last step
  MetricsFile metrics;
  std::optional<RecordSinks> sinks;
  Report report;
  int text = -1;  // log.txt

  std::mutex mutex;             // of what follows
  StepRecord now;               // step 0: none in this process
  std::vector<PartTime> parts;  // sums over the steps of this process
  std::optional<EnergyLedger> ledger;
  GpuWatch gpus;
  struct Busy {
    std::string what{};
    int64_t done = 0, total = 0;
    Clock::time_point since{};
    std::string words() const;
  } busy;
  Throttle throttle{kRedrawPeriod}, plain{kBusyPeriod};
  Progress progress;  // at the bottom of the terminal
  StatusLine line;
  bool refused = false;  // by the disk, and reported
  bool finished = false;
};

namespace {

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

RunLog::State::State(const std::string& directory, const std::string& title, const RunSchedule& schedule, const RecordStart& start,
                     int64_t log_every)
    : directory(directory),
      total(schedule.steps),
      log_every(log_every),
      earlier(empty_report(title, schedule.steps)),
      left(schedule),
      metrics(directory, start, earlier_lines()),
      report(directory, std::move(earlier)) {
  text = open((directory + "/log.txt").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (text < 0) throw unwritable(directory + "/log.txt");
  progress = {.label = title, .done = start.step > 0 ? start.step : 0, .total = total, .details = {}};
}

// The report and the time left continue from the lines before a resume.
MetricsReader RunLog::State::earlier_lines() {
  return {
      .step =
          [this](const StepRecord& record) {
            earlier.add(record), left.step(record.step_ms / 1000);
            if (std::isfinite(record.step_ms)) step_seconds += record.step_ms / 1000;
          },
      .eval = [this](const EvalRecord& record) { earlier.add(record), measured(record.step, "", record.seconds); },
      .choices = [this](const ChoicesRecord& record) { earlier.add(record), measured(record.step, record.name, record.seconds); },
      .saved = [this](const SaveRecord& record) { left.save(record.stall_ms / 1000); }};
}

void RunLog::State::measured(int64_t step, const std::string& part, double seconds) {
  left.evaluation(step, part, seconds);
  evaluated[part] = step;
}

void RunLog::State::check(bool written) {
  if (!written && !refused)
    complain("warning: the run directory cannot be written (disk full?); the run continues without its log");
  refused = refused || !written;
}

void RunLog::State::record(const RunRecord& record, const std::string& line) {
  check(metrics.append(line));
  if (sinks) sinks->send(record);
}

void RunLog::State::write_text(std::string_view line) { check(write_all(text, utc_now() + "  " + printable_lines(line) + "\n")); }

StepRecord RunLog::State::usual() const {
  StepRecord shown = now;
  const double change = now.step_ms / 1000 / left.usual_step();
  if (!std::isfinite(change)) return shown;
  shown.tokens_per_second *= change;
  if (std::isfinite(shown.mfu)) shown.mfu = std::min(1.0, shown.mfu * change);
  return shown;
}

double RunLog::State::eta() const {
  return left.after(progress.done, busy.total > 0 ? static_cast<double>(busy.done) / static_cast<double>(busy.total) : 0);
}

std::string RunLog::State::Busy::words() const {
  return total > 0 ? what + " " + std::to_string(done) + "/" + std::to_string(total) : what;
}

std::vector<std::string> RunLog::State::details() const {
  std::vector<std::string> fields{of_total(progress.done, total)};
  if (!busy.what.empty()) fields.push_back(busy.words());
  if (now.step > 0) fields.push_back("loss " + fixed(now.loss, 4));
  const DownsampledCurve& val = report.data().val_loss;
  if (!val.empty()) fields.push_back("val " + fixed(val.last(), 4));
  const StepRecord shown = usual();
  if (busy.what.empty()) fields.push_back(human_count(shown.tokens_per_second) + " tok/s");
  if (now.step < total || !busy.what.empty()) fields.push_back("ETA " + human_seconds(eta()));
  if (busy.what.empty() && std::isfinite(shown.mfu)) fields.push_back("MFU " + fixed(100 * shown.mfu, 1) + "%");
  return fields;
}

std::string RunLog::State::plain_line() const {
  const StepRecord shown = usual();
  std::string line = "step " + of_total(now.step, total) + "  loss " + fixed(now.loss, 4) + "  norm " +
                     significant(now.grad_norm, 4) + "  lr " + significant(now.lr, 4) + "  " + human_seconds(now.step_ms / 1000) +
                     "  " + human_count(shown.tokens_per_second) + " tok/s";
  if (std::isfinite(shown.mfu)) line += "  mfu " + fixed(100 * shown.mfu, 1) + "%";
  line += "  stall " + human_seconds(now.data_ms / 1000);
  return line + (now.step < total ? "  eta " + human_seconds(eta()) : "");
}

void RunLog::State::redraw() {
  if ((now.step == 0 && busy.what.empty()) || finished) return;
  progress.details = details();
  line.draw(progress);
}

RunLog::RunLog(const std::string& directory, const std::string& title, const RunSchedule& schedule, const RecordStart& start,
               int64_t log_every)
    : state_(std::make_unique<State>(directory, title, schedule, start, log_every > 1 ? log_every : 1)) {
  if (const std::string& problem = state_->metrics.problem(); !problem.empty()) note(problem);
  if (const int64_t dropped = state_->metrics.dropped(); dropped > 0)
    note("metrics.jsonl: " + std::to_string(dropped) + " torn lines or lines after step " + std::to_string(start.step) +
         " dropped");
}

RunLog::~RunLog() { state_->line.leave(); }

void RunLog::also_to(const ReportConfig& config, const RunFacts& facts) {
  state_->starts = facts.starts;
  state_->sinks.emplace(config, state_->directory, facts, state_->step_seconds);
  note_warnings();
}

void RunLog::note_warnings() {
  if (!state_->sinks) return;
  for (const std::string& warning : state_->sinks->take_warnings()) note(warning);
}

namespace {

void add_parts(std::vector<PartTime>& sums, const std::vector<PartTime>& parts) {
  for (const PartTime& part : parts) {
    const auto found = std::ranges::find(sums, part.name, &PartTime::name);
    if (found == sums.end())
      sums.push_back(part);
    else
      found->ms += part.ms;
  }
}

}  // namespace

// "time of steps: 60 % backward, 30 % forward, 10 % waiting for dp"; small parts are left out.
std::string RunLog::State::parts_line() const {
  std::vector<PartTime> sorted = parts;
  std::ranges::stable_sort(sorted, std::greater(), &PartTime::ms);
  double all = 0;
  for (const PartTime& part : sorted) all += part.ms;
  std::string line;
  for (const PartTime& part : sorted) {
    if (part.ms < 0.005 * all || all == 0) continue;
    const bool waits = part.name.starts_with("wait_");
    line += (line.empty() ? "time of steps: " : ", ") + fixed(100 * part.ms / all, 0) + " % " +
            (waits ? "waiting for " + part.name.substr(5) : part.name);
  }
  return line;
}

// Last words of a run that was started again, or has taken a while.
std::string RunLog::State::goodput_line() const {
  constexpr double kWhile = 600;
  const double now = unix_seconds(), all = now - starts.first;
  if (starts.count == 0 || (starts.count == 1 && all < kWhile)) return "";
  const std::string since = starts.count == 1 ? "the start" : "the first of " + std::to_string(starts.count) + " starts";
  return "goodput: " + fixed(100 * starts.goodput(step_seconds, now), 1) + " % of the " + human_seconds(all) + " since " + since +
         " were steps";
}

void RunLog::account(EnergyOrders orders) {
  const std::lock_guard lock(state_->mutex);
  state_->ledger.emplace(std::move(orders));
}

void RunLog::energy(const std::vector<MachineReading>& ranks) {
  State& s = *state_;
  std::vector<GpuNews> news;
  {
    const std::lock_guard lock(s.mutex);
    if (!s.ledger || s.now.step == 0) return;
    const EnergyRecord record = s.ledger->account(ranks, {.step = s.now.step,
                                                          .tokens = static_cast<double>(s.now.tokens),
                                                          .seconds = unix_seconds() - program_start(),
                                                          .seconds_left = s.eta()});
    s.record(record, json_line(record));
    news = s.gpus.look(record);
  }
  for (const GpuNews& one : news) event({.step = s.now.step, .event = one.event, .since = s.now.step}, one.line);
}

void RunLog::facts(std::vector<std::pair<std::string, std::string>> rows) { state_->report.facts(std::move(rows)); }

void RunLog::step(const StepRecord& record) {
  note_warnings();
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const bool first = s.now.step == 0, last = record.step >= s.total;
  s.now = record;
  add_parts(s.parts, record.parts);
  s.step_seconds += record.step_ms / 1000;
  if (s.ledger) s.ledger->computed(static_cast<double>(record.step_tokens));
  s.progress.done = record.step;
  s.left.step(record.step_ms / 1000);
  s.record(record, json_line(record));
  s.report.add(record, s.usual(), s.eta());
  if (first || last || record.step % s.log_every == 0) {
    const std::string line = s.plain_line();
    s.write_text(line);
    if (!s.line.possible()) say_if_heard(line);
  }
  if (s.throttle.due(Clock::now()) || last) s.redraw();
}

void RunLog::busy(std::string_view what, int64_t done, int64_t total) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.sinks) s.sinks->busy(true);
  const auto now = Clock::now();
  const bool begins = s.busy.what != what;
  if (begins) s.busy = {.what = std::string(what), .since = now};
  s.busy.done = done, s.busy.total = total;
  if (begins) s.plain = Throttle(kBusyPeriod);
  const bool due = s.plain.due(now) && !begins;
  if (s.line.possible()) {
    if (s.throttle.due(now) || begins) s.redraw();
  } else if (due && done > 0 && total > 0) {
    const double left = static_cast<double>(total - done) / static_cast<double>(done) * seconds_since(s.busy.since);
    say_if_heard(s.busy.words() + "  eta " + human_seconds(left));
  }
}

void RunLog::idle() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.busy = {};
  if (s.sinks) s.sinks->busy(false);
  s.redraw();
}

bool RunLog::evaluated(int64_t step, const std::string& part) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->evaluated.find(part);
  return found != state_->evaluated.end() && found->second == step;
}

void RunLog::event(const EventRecord& record, std::string_view line) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->record(record, json_line(record));
  }
  if (!line.empty()) note(line);
}

void RunLog::busy_ranks(const BusyRecord& record) {
  const std::lock_guard lock(state_->mutex);
  state_->record(record, json_line(record));
}

void RunLog::eval(const EvalRecord& record) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.record(record, json_line(record));
    s.report.add(record);
    s.measured(record.step, "", record.seconds);
  }
  note("eval " + of_total(record.step, s.total) + "  " + result_of(record) + "  (" +
       human_count(static_cast<double>(record.val_tokens)) + " tokens, " + human_seconds(record.seconds) + ")");
}

void RunLog::choices(const ChoicesRecord& record, std::string_view words) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.record(record, json_line(record));
    s.report.add(record);
    s.measured(record.step, record.name, record.seconds);
  }
  note("eval " + of_total(record.step, s.total) + "  " + record.name + " " + std::string(words) + "  (" +
       human_count(static_cast<double>(record.questions)) + " questions, " + human_seconds(record.seconds) + ")");
}

void RunLog::note(std::string_view line) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  say_if_heard(line);
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
  state_->left.save(stall);
  state_->record(record, json_line(record));
}

// Without the mutex: a disk may take its time, and steps are logged meanwhile.
void RunLog::sync() { state_->metrics.sync(); }

ChainedDigest RunLog::recorded() {
  const std::lock_guard lock(state_->mutex);
  state_->metrics.flush();
  return state_->metrics.written();
}

void RunLog::last_words() {
  State& s = *state_;
  if (s.sinks) s.sinks->busy(true), s.sinks->finish();
  note_warnings();
  for (const std::string& line : {s.parts_line(), s.goodput_line(), s.energy_line()})
    if (!line.empty()) note(line);
}

void RunLog::finish() {
  State& s = *state_;
  s.report.finish();
  last_words();
  const ReportData& data = s.report.data();
  const std::string best =
      data.best.step > 0 ? ", best " + result_of(data.best) + " at step " + std::to_string(data.best.step) : "";
  {
    const std::lock_guard lock(s.mutex);
    s.finished = true;
    s.line.erase();
    s.check(s.metrics.flush() && s.metrics.sync());
  }
  note((data.step < s.total ? "stopped after " : "finished ") + std::to_string(data.step) + " steps, " +
       human_count(static_cast<double>(data.tokens)) + " tokens in " + human_seconds(data.elapsed) + ": loss " +
       fixed(data.loss.last(), 4) + best + "; " + s.report.path());
}

}  // namespace trireme
