#include "train/telemetry/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/replace_file.h"
#include "train/telemetry/exposition.h"
#include "train/telemetry/machine_metrics.h"

namespace trireme {
namespace {

constexpr size_t kMostRankSeries = 64;
constexpr double kUsualSilence = 60;  // seconds without a record that are usual at least

void write_facts(Exposition& out, const RunFacts& facts) {
  out.metric("build_info", "gauge", "The program that trains; always 1.")
      .sample(1, label("version", facts.version) + "," + label("commit", facts.commit));
  out.gauge("start_timestamp_seconds", "Start of this process; it changes at each restart.", program_start());
  out.gauge("restored_step", "Step of the checkpoint from which this start continues; 0: none.",
            static_cast<double>(facts.restored));
  out.gauge("ranks", "Processes that train.", static_cast<double>(facts.ranks));
  out.gauge("total_steps", "train.steps.", static_cast<double>(facts.total_steps));
  out.gauge("checkpoint_interval_steps", "checkpoint.every; 0: only at the end.", static_cast<double>(facts.save_every));
}

void write_goodput(Exposition& out, const RunStarts& starts, double step_seconds) {
  out.counter("restarts_total", "Starts of the run after its first.", static_cast<double>(starts.count - 1));
  out.gauge("goodput_ratio", "Seconds of steps that count, relative to all seconds since the run's first start.",
            starts.goodput(step_seconds, unix_seconds()));
}

void write_steps(Exposition& out, const RunNumbers& n) {
  const StepRecord& step = n.step;
  out.gauge("step", "Finished optimizer steps.", static_cast<double>(step.step));
  out.gauge("last_step_timestamp_seconds", "End of the last step.", n.step_time);
  out.gauge("loss", "Training loss of the last step, in nats per token.", step.loss);
  out.gauge("grad_norm", "Gradient norm of the last step, before clipping.", step.grad_norm);
  out.gauge("learning_rate", "Learning rate of the last step.", step.lr);
  out.gauge("run_tokens", "Tokens since the beginning of the run.", static_cast<double>(step.tokens));
  out.counter("tokens_total", "Tokens of the steps of this process.", n.tokens);
  out.gauge("tokens_per_second", "Tokens per second of the last step.", step.tokens_per_second);
  if (!std::isnan(step.mfu)) {
    out.gauge("mfu_ratio", "Model FLOPs utilization of the last step, 0 to 1, with causal attention.", step.mfu);
    out.gauge("mfu_full_ratio", "The same with attention of all pairs, as many publish it.", step.mfu_full);
    out.gauge("hfu_ratio", "Hardware FLOPs utilization of the last step, with what is computed again.", step.hfu);
  }
  out.metric("step_seconds", "histogram", "Seconds of the steps of this process.");
  for (size_t i = 0; i < n.kSeconds.size(); ++i)
    out.sample(static_cast<double>(n.steps_within[i]), label("le", prometheus_number(n.kSeconds[i])), "_bucket");
  out.sample(static_cast<double>(n.steps), label("le", "+Inf"), "_bucket");
  out.sample(n.step_seconds, "", "_sum").sample(static_cast<double>(n.steps), "", "_count");
  if (!n.part_seconds.empty()) {
    out.metric("part_seconds_total", "counter", "Seconds of parts of this process's steps; wait_AXIS: for other ranks.");
    for (const auto& [part, seconds] : n.part_seconds) out.sample(seconds, label("part", part));
  }
  out.counter("data_wait_seconds_total", "Seconds that steps of this process have waited for their batch.", n.data_seconds);
  out.metric("skipped_steps_total", "counter", "Steps of this process without an update.");
  for (const auto& [why, count] : n.skipped) out.sample(static_cast<double>(count), label("why", why));
}

void write_ranks(Exposition& out, const RunNumbers& n) {
  const BusyRecord& busy = n.busy;
  out.counter("stragglers_total", "Times that this process has named a slow rank.", static_cast<double>(n.stragglers));
  if (busy.step == 0) return;
  out.gauge("straggler_ratio", "Work of the slowest rank in a step, relative to its peers, over the last window.", busy.ratio);
  out.gauge("slowest_rank", "That rank.", static_cast<double>(busy.slowest));
  if (busy.ms.size() > kMostRankSeries) return;
  out.metric("rank_busy_seconds", "gauge", "Work of a rank in a step, without waits for other ranks: median of a window.");
  for (size_t rank = 0; rank < busy.ms.size(); ++rank) out.sample(busy.ms[rank] / 1000, label("rank", std::to_string(rank)));
}

void write_saves(Exposition& out, const RunNumbers& n, int64_t on_disk) {
  out.counter("saves_total", "Checkpoints that this process has committed, also those in memory.", static_cast<double>(n.saves));
  out.counter("save_stall_seconds_total", "Seconds that steps of this process have waited for saves.", n.save_stall);
  out.gauge("last_checkpoint_step", "Step of the newest checkpoint on disk.", static_cast<double>(std::max(n.save.step, on_disk)));
  if (n.save.step == 0) return;
  out.gauge("last_checkpoint_timestamp_seconds", "Commit of the last checkpoint on disk by this process.", n.save_time);
  out.gauge("checkpoint_bytes", "Bytes of the last checkpoint on disk by this process.", static_cast<double>(n.save.bytes));
  out.gauge("checkpoint_seconds", "Seconds from the copy of its state to its commit.", n.save.seconds);
}

void write_evaluations(Exposition& out, const RunNumbers& n) {
  if (n.eval.step > 0) {
    out.gauge("eval_step", "Step of the last evaluation on held-out text.", static_cast<double>(n.eval.step));
    out.gauge("eval_loss", "Its loss, in nats per token.", n.eval.val_loss);
    if (!std::isnan(n.eval.bits_per_byte)) out.gauge("eval_bits_per_byte", "Its bits per byte.", n.eval.bits_per_byte);
  }
  if (n.choices.empty()) return;
  out.metric("choices_accuracy_ratio", "gauge", "Right answers to multiple-choice questions, 0 to 1.");
  for (const auto& [name, record] : n.choices) out.sample(record.accuracy, label("choices", name));
}

}  // namespace

void RunNumbers::add(const StepRecord& record) {
  const double seconds = record.step_ms / 1000;
  step = record, step_time = unix_seconds();
  for (size_t i = 0; i < kSeconds.size(); ++i) steps_within[i] += seconds <= kSeconds[i] ? 1 : 0;
  recent[static_cast<size_t>(steps++) % recent.size()] = seconds;
  tokens += static_cast<double>(record.step_tokens);
  step_seconds += seconds, data_seconds += record.data_ms / 1000;
  for (const PartTime& part : record.parts) part_seconds[part.name] += part.ms / 1000;
}

void RunNumbers::add(const EventRecord& record) {
  if (const auto found = skipped.find(record.event); found != skipped.end()) ++found->second;
  stragglers += record.event == "straggler" ? 1 : 0;
}

void RunNumbers::add(const SaveRecord& record) {
  ++saves, save_stall += record.stall_ms / 1000;
  if (!record.in_memory) save = record, save_time = unix_seconds();
}

RunMetrics::RunMetrics(RunFacts facts, double before) : facts_(std::move(facts)), before_(before) {}

void RunMetrics::add(const RunRecord& record) {
  const std::lock_guard lock(mutex_);
  last_ = Clock::now();
  std::visit([this](const auto& r) { numbers_.add(r); }, record);
}

void RunMetrics::busy(bool busy) {
  const std::lock_guard lock(mutex_);
  last_ = Clock::now(), busy_ = busy;
}

RunMetrics::Pulse RunMetrics::pulse() const {
  const std::lock_guard lock(mutex_);
  const double slowest = *std::max_element(numbers_.recent.begin(), numbers_.recent.end());
  const double usual = std::max({kUsualSilence, facts_.patience, 3 * slowest});
  const bool any = busy_ || numbers_.steps == 0;
  return {.silent = seconds_since(last_), .usual = any ? std::numeric_limits<double>::infinity() : usual};
}

std::string RunMetrics::text() const {
  const std::lock_guard lock(mutex_);
  Exposition out(facts_.run);
  write_facts(out, facts_);
  if (facts_.starts.count > 0) write_goodput(out, facts_.starts, before_ + numbers_.step_seconds);
  if (numbers_.steps > 0) write_steps(out, numbers_);
  write_ranks(out, numbers_);
  write_saves(out, numbers_, facts_.on_disk);
  write_evaluations(out, numbers_);
  if (numbers_.energy) write_energy(out, *numbers_.energy);
  return out.text();
}

void RunMetricsFile::write() {
  written_ = Clock::now();
  if (!replace_file(path_, metrics_.text())) throw unwritable(path_);
}

void RunMetricsFile::caught_up() {
  if (seconds_since(written_) >= 1) write();
}

void RunMetricsFile::finish() {
  if (any_) write();
}

}  // namespace trireme
