#include "train/run/step_profile.h"

#include <algorithm>

#include "base/replace_file.h"
#include "parallel/host_collectives.h"
#include "train/telemetry/trace_text.h"

namespace trireme {
namespace {

constexpr int64_t kMostRanks = 64;  // whose traces are in a file

}  // namespace

void StepProfile::begin(int64_t step) {
  if (now_) return;
  const StepRanges& wanted = session_.config.train.profile;
  const auto found = std::ranges::find_if(wanted, [&](const StepRange& r) { return r.first <= step && step <= r.last; });
  if (found != wanted.end())
    now_ = StepRange{step, found->last};
  else if (next_ <= step && step <= last_)
    now_ = StepRange{step, last_};
  if (!now_) return;
  now_->last = std::min({now_->last, step + kMostSteps - 1, session_.config.train.steps});
  if (session_.run.device.place() == Place::cpu) session_.run.device.trace(true);
}

void StepProfile::end(int64_t step) {
  if (!now_ || step < now_->last) return;
  write();
  now_.reset();
}

void StepProfile::trace(int64_t step, int64_t steps) { next_ = step, last_ = step + steps - 1; }

void StepProfile::write() {
  TrainState& run = session_.run;
  if (run.device.place() != Place::cpu) return session_.note("warning: steps of GPUs are not traced; nsys shows their ops by name");
  const Doing doing(session_.journal, "writing a trace");
  const Comm& all = run.mesh.all();
  const double zero = std::stod(broadcast(all, std::to_string(unix_seconds())));
  std::string mine;
  if (all.rank() < kMostRanks)
    mine = trace_events({.rank = all.rank(), .described = run.mesh.describe(), .lanes = run.device.traces()}, zero);
  int64_t dropped = 0;
  for (const LaneTrace& lane : run.device.traces()) dropped += lane.dropped;
  run.device.trace(false);
  const std::vector<std::string> ranks = gather(all, mine);
  if (!session_.log) return;
  if (dropped > 0) session_.note("warning: the trace lacks " + std::to_string(dropped) + " events of rank 0: trace fewer steps");
  if (all.size() > kMostRanks) session_.note("the trace has ranks 0 to " + std::to_string(kMostRanks - 1));
  const std::string path = text(session_.config.train.directory(), "/trace-", now_->first, "-", now_->last, ".json");
  if (replace_file(path, trace_text(ranks)))
    session_.note("wrote " + path + ": open it in https://ui.perfetto.dev");
  else
    session_.note("warning: cannot write " + path);
}

}  // namespace trireme
