// SaveScheduler: copies, writes and commits the state of a run while it trains, and logs the result.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "checkpoint/checkpoints.h"
#include "train/run/step_statistics.h"
#include "train/step/host_state.h"
#include "train/step/step.h"
#include "train/telemetry/run_log.h"

namespace trireme {

// How a save went, and what it cost the steps.
struct SaveTimes {
  SaveResult result;
  double snapshot;  // seconds for the copy of the state; on a GPU, to hand it over
  double stall;     // seconds that steps waited in all, of which the copy is one part
};

class SaveScheduler {
 public:
  // Takes the memory of the copy, unless checkpoint.async is false. What it is given outlives it; `log` is rank 0's. The journal
  // hears when steps wait for a disk.
  SaveScheduler(TrainState& run, const StepStatistics& history, Checkpoints& checkpoints, std::optional<RunLog>& log,
                Journal& journal);
  ~SaveScheduler() { checkpoints_.abandon(); }  // its threads read the copy
  SaveScheduler(const SaveScheduler&) = delete;
  SaveScheduler& operator=(const SaveScheduler&) = delete;

  // Records that each checkpoint keeps, besides the log's: see Manifest.
  void keep(const std::map<std::string, ChainedDigest>& records) { records_ = records; }

  // The bytes that were read again so far, for the log.
  void scrubs(std::function<int64_t()> bytes) { scrubbed_ = std::move(bytes); }

  // All ranks, after `step` finished steps and none in flight: the state is copied, and its save begun. One that is under way ends
  // first. Without checkpoint.async, the save has ended. A save that fails is reported, and training continues: the one before is
  // intact.
  void begin(int64_t step, Tier tier = Tier::disk);
  // The same, to its end, and it must succeed: CheckpointError.
  void save_at_last(int64_t step);
  bool busy() const { return checkpoints_.busy(); }  // see Checkpoints
  void advance();                                    // all ranks, when none of them is busy
  void end();                                        // no save is under way any more

  int64_t saved() const { return saved_; }         // the step of the last save that was committed to disk; -1: none
  const SaveTimes& last() const { return last_; }  // that succeeded

 private:
  void start(int64_t step, Tier tier);
  template <class Call>
  void note_outcome(Call call);
  void ended(const SaveResult& result);
  void failed(const CheckpointError& error);

  const RunConfig& config_;
  const StepStatistics& history_;
  Checkpoints& checkpoints_;
  std::optional<RunLog>& log_;
  Journal& journal_;
  std::map<std::string, ChainedDigest> records_;
  std::function<int64_t()> scrubbed_;
  HostState copy_;
  int64_t step_ = -1, saved_ = -1;
  double snapshot_ = 0, stall_ = 0;  // of the save under way: see SaveTimes
  SaveTimes last_{};
};

// A step's data, over all replicas.
SeenData read_by_step(const RunConfig& config);

// With these tensors, after `step` steps of this history.
CheckpointState state_of(const RunConfig& config, std::vector<TensorSlice> slices, int64_t step, const StepStatistics& history);

}  // namespace trireme
