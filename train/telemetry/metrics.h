// runs/NAME/metrics.jsonl, one JSON object per line, and runs/NAME/exit.json.
//
// A training line holds step, loss, grad_norm, lr, tokens, step_ms, data_ms, tokens_per_second, mfu, mfu_full, hfu, parts_ms; an
// evaluation line step, val_loss, bits_per_byte, val_tokens, seconds; a file of train.eval_choices step, choices (its name), acc,
// acc_stderr, acc_norm, acc_norm_stderr, chance, questions, seconds; an event step, event, since, and rank, host, text of a rank;
// the ranks' work step, slowest_rank, slowest_ratio, busy_ms; a committed save step, saved_bytes, saved_seconds,
// write_gb_per_second, save_stall_ms, tier, run, scrubbed_bytes; energy and cost as EnergyRecord has them. Of two runs with the
// same losses, lines of saves, of ranks and of energy may stand elsewhere or be missing: when they come is measured, too. A line is
// written in one call: a kill leaves at most one torn line, the last. Losses and norms are floats and print so that they read back
// as the same float; what is not finite prints as null. The file of a run that was killed and resumed equals the undisturbed run's
// but for the measured times and rates, if the caller writes the lines of step s before it saves step s.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/chained_digest.h"
#include "base/error.h"
#include "train/telemetry/energy_record.h"

namespace trireme {

// A part of a step, of rank 0's thread that computes: "forward"; or "wait_tp" for a wait for other ranks along an axis.
struct PartTime {
  std::string name;
  double ms = 0;
};

struct StepRecord {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;                // finished optimizer steps, from 1
  double loss = 0, grad_norm = 0;  // float values, but for norms that f32 cannot hold
  double lr = 0;
  int64_t tokens = 0;                         // seen since the run's beginning
  int64_t step_tokens = 0;                    // of this step; not in the file
  double step_ms = 0, tokens_per_second = 0;  // measured
  double data_ms = 0;                         // of it, that the step waited for its batch to be read
  // Use of the peak rate of products, NaN when it is unknown. MFU counts causal attention, 0 to 1; HFU also what is computed
  // again, 0 to 1; mfu_full attention of all pairs, computed or not.
  double mfu = 0, mfu_full = kUnknown, hfu = kUnknown;
  std::vector<PartTime> parts{};  // they add up to the step; empty on a GPU
};

struct EvalRecord {
  int64_t step = 0;
  double val_loss = 0;       // float value, nats per token
  double bits_per_byte = 0;  // float value; NaN when unknown
  int64_t val_tokens = 0;
  double seconds = 0;  // measured
};

struct ChoicesRecord {  // see train/eval/choices.h
  int64_t step = 0;
  std::string name;
  double accuracy = 0, accuracy_error = 0, normalised = 0, normalised_error = 0, chance = 0;
  int64_t questions = 0;
  double seconds = 0;  // measured
};

struct EventRecord {
  int64_t step = 0;
  std::string event;  // "zero_gradients"; of a step without an update "spike" or "not_finite"
  int64_t since = 0;  // the first step of it
  int64_t rank = -1;  // concerned; -1: none
  std::string host{}, text{};
};

// Work of the ranks in a step, without waits for other ranks: the medians of a window of steps.
struct BusyRecord {
  int64_t step = 0;          // the last of the window
  int64_t slowest = 0;       // the rank whose work takes longest relative to its peers
  double ratio = 1;          // of its work to that of its peers
  std::vector<double> ms{};  // by rank
};

struct SaveRecord {
  int64_t step = 0;          // whose state it is
  int64_t bytes = 0;         // of all ranks
  double seconds = 0;        // from the copy of the state to the commit
  double write_seconds = 0;  // until all ranks' parts were on disk
  double stall_ms = 0;       // that the steps waited for it
  bool in_memory = false;    // not on disk
  std::string run{};         // the run's token
  int64_t scrubbed = 0;      // bytes read again so far, by this process
};

// Each with its newline.
std::string json_line(const StepRecord& record);
std::string json_line(const EvalRecord& record);
std::string json_line(const ChoicesRecord& record);
std::string json_line(const EventRecord& record);
std::string json_line(const BusyRecord& record);  // of at most 1,024 ranks
std::string json_line(const SaveRecord& record);
std::string json_line(const EnergyRecord& record);

// Callbacks for the lines that a resume keeps, in their order.
struct MetricsReader {
  std::function<void(const StepRecord&)> step;
  std::function<void(const EvalRecord&)> eval;
  std::function<void(const ChoicesRecord&)> choices{};
  std::function<void(const SaveRecord&)> saved{};  // times alone; those to disk
};

// The point from which a record continues.
struct RecordStart {
  int64_t step = -1;                        // of the checkpoint that was restored; -1: the record begins anew
  std::string run{};                        // the run's token
  std::optional<ChainedDigest> expected{};  // the record's beginning, as the checkpoint knows it
  RecordStart(int64_t step) : step(step) {}
  RecordStart(int64_t step, std::string run, std::optional<ChainedDigest> expected)
      : step(step), run(std::move(run)), expected(expected) {}
};

class MetricsFile {
 public:
  // Opens directory/metrics.jsonl. Later lines and torn ones are dropped and the others read out. A file that does not begin as
  // expected is set aside, and the record begins anew: see problem(). DataError when the directory cannot be written, or when the
  // file is a link.
  MetricsFile(const std::string& directory, const RecordStart& start, const MetricsReader& earlier);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // False when the disk refuses. The line is kept in memory then, up to a bound, and written before the next one.
  bool append(std::string_view line);
  bool flush();  // writes the lines kept in memory; false if the disk still refuses
  bool sync();   // to the disk itself

  int64_t dropped() const { return dropped_; }               // lines left out at the resume
  int64_t lost() const { return lost_; }                     // lines beyond the bound
  const std::string& problem() const { return problem_; }    // why the file was set aside; "": it was not
  const ChainedDigest& written() const { return written_; }  // the whole file

 private:
  bool write(std::string_view line);
  void require_expected(const std::string& path, const RecordStart& start);

  int file_ = -1;
  int64_t dropped_ = 0, lost_ = 0;
  ChainedDigest written_;
  bool torn_ = false;                // a part of a line stands after what is written
  std::deque<std::string> waiting_;  // lines that the disk has refused
  int64_t waiting_bytes_ = 0;
  std::string problem_;
};

// Writes directory/exit.json: {"code", "cause", "rank", "host", "step", "message", "run"}, whole or not at all. Never throws: it is
// the last act of a program that is ending for another reason; a failure is reported on stderr. `step` -1: before the first.
// `host`: where the fault is; "": unknown.
void write_exit(const std::string& directory, ExitCode code, const std::string& cause, int rank, int64_t step,
                const std::string& message, const std::string& host) noexcept;

}  // namespace trireme
