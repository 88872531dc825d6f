// RunHistory: the content of a metrics.jsonl, as bounded curves and a list of events.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/telemetry/busy_map.h"
#include "train/telemetry/downsampled_curve.h"
#include "train/telemetry/metrics.h"
#include "train/telemetry/time_left.h"

namespace trireme {

// A moment of a run that people want to see on its curves.
struct RunEvent {
  int64_t step = 0;
  std::string kind;   // "save", "spike", "not_finite", "straggler", "restart", "verdict" or another word of the run's
  std::string words;  // for people
};

// Energy and cost so far; NaN where the run does not record them.
struct MachineUse {
  double kwh = StepRecord::kUnknown, joules_per_token = StepRecord::kUnknown, co2_g = StepRecord::kUnknown;
  double cost = StepRecord::kUnknown, projected_cost = StepRecord::kUnknown, power_w = StepRecord::kUnknown;
  std::string currency{};
  bool any() const { return kwh == kwh || cost == cost || power_w == power_w; }
};

// The rank whose work takes longest relative to its peers, the other ranks of its pipeline stage; -1: unknown.
struct SlowestRank {
  int64_t step = 0, rank = -1;
  double ratio = 1;  // to the median of its peers
};

class RunHistory {
 public:
  static constexpr size_t kMostEvents = 2000;  // the newest are kept
  static constexpr int64_t kFineBins = 1024, kBins = 512;

  explicit RunHistory(const RunSchedule& schedule = {}) : left(schedule) {}

  // One line of metrics.jsonl. A line that is torn, or of a kind that is not known, changes nothing.
  void add(std::string_view line);
  void add(RunEvent event);

  const DownsampledCurve& curve(std::string_view name) const;  // an empty one if there is none
  int64_t first_event() const { return all_events - static_cast<int64_t>(events.size()); }
  int64_t count(std::string_view kind) const;  // of events, also of those no longer kept

  StepRecord last{};  // without its parts
  EvalRecord eval{}, best{};
  int64_t first_step = 0;
  double step_seconds = 0, eval_seconds = 0, save_stall = 0;  // sums
  int64_t saves = 0;
  // By name: loss, val_loss, bits_per_byte, lr, grad_norm, tokens_per_second, mfu, step_ms, data_ms, power_w, those of
  // parts_ms as "part/NAME", accuracies as "choices/NAME" and "choices_norm/NAME".
  std::map<std::string, DownsampledCurve, std::less<>> curves{};
  std::vector<PartTime> parts{};  // sums, in the order of their first steps
  BusyMap busy{};
  SlowestRank slowest{};
  MachineUse machine{};
  std::deque<RunEvent> events{};
  int64_t all_events = 0;
  TimeLeft left;

 private:
  using Members = std::vector<std::pair<std::string_view, std::string_view>>;
  void add_step(int64_t step, const Members& members);
  void add_parts(int64_t step, std::string_view parts);
  void add_eval(int64_t step, const Members& members);
  void add_rare(int64_t step, std::string_view line);
  void add_ranks(int64_t step, const Json& json);
  DownsampledCurve& curve_to_fill(std::string_view name, int64_t bins = kBins);

  std::map<std::string, int64_t, std::less<>> counts_;
  Members members_;  // of the line that is read
};

}  // namespace trireme
