#include "train/run/resume.h"

#include <algorithm>
#include <optional>

#include "train/config/keys.h"
#include "train/hub/init_from.h"
#include "train/run/save_scheduler.h"
#include "train/step/host_state.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

bool changes_the_run(const RunConfig& config, const std::string& difference) {
  return std::ranges::any_of(list_keys(config),
                             [&](const Key& key) { return key.limit.of_the_run && difference.starts_with(key.full() + ":"); });
}

// Which of its products are of 8 bits.
std::string products_of(const RunConfig& config) {
  if (config.kernels.matmul != MatmulDtype::fp8) return "bf16";
  return "fp8 but for " + std::to_string(config.kernels.bf16_layers) + " layers at each end";
}

}  // namespace

std::vector<std::string> compare_for_resume(const RunConfig& config, const std::string& saved, bool allow) {
  std::vector<std::string> told;
  std::string refused;
  const RunConfig before = parse_config("the checkpoint's config", saved);
  if (const std::string was = products_of(before), is = products_of(config); was != is && config.kernels.dtype == StepDtype::bf16)
    refused += "kernels.matmul: products in " + was + " -> " + is + ": the checkpoint belongs to another run\n";
  for (const std::string& difference : differences(before, config)) {
    if (difference.starts_with("train.name:") || difference.starts_with("train.runs:")) continue;
    told.push_back("changed since the checkpoint: " + difference);
    if (changes_the_run(config, difference)) refused += difference + ": the checkpoint belongs to another run\n";
  }
  if (!refused.empty() && !allow)
    throw ConfigError(refused + "take these back, choose another train.name for a new run, or continue with --resume-allow");
  return told;
}

void initialise(const RunConfig& config, TrainState& run, const std::function<void()>& moved) {
  Stream& compute = run.device.compute();
  run.optimizer.initialise(compute, config.model.init_std, config.model.layers);
  if (config.train.init_from.empty()) return;
  HostState host(run.device, state_slices(run, Ownership::held), Copies::where_needed);
  host.fetch();
  host.wait();
  init_from(config, host.slices(), run.mesh.all(), moved);
  host.store();
  run.optimizer.refresh(compute, 0);
  if (run.mesh.first()) say("weights from " + config.train.init_from);
}

int64_t restore(TrainState& run, Checkpoints& checkpoints, const ResumeChoice& resume, StepStatistics& history, Journal& journal) {
  const RunConfig& config = run.config;
  std::optional<HostState> host(std::in_place, run.device, state_slices(run, Ownership::held), Copies::where_needed);
  CheckpointState state = state_of(config, host->slices(), 0, history);
  std::optional<int64_t> step;
  if (resume.from == "auto")
    step = checkpoints.restore(state);
  else if (resume.from != "never")
    step = checkpoints.restore_from(resume.from, state);
  const auto tell = [&](const std::string& line) {
    if (run.mesh.first()) complain(line);
  };
  for (const std::string& warning : checkpoints.take_warnings()) tell(warning);
  Stream& compute = run.device.compute();
  if (!step) {
    history.load({}, 0);
    host.reset();
    initialise(config, run, [&] { journal.disk_moved(); });
    return 0;
  }
  for (const std::string& line : compare_for_resume(config, state.config, resume.allow_changes)) tell(line);
  history.load(state.counters, *step);
  host->store();
  host.reset();
  HostState there(run.device, state_slices(run, Ownership::saved), Copies::where_needed);
  there.fetch();
  there.wait();
  checkpoints.confirm(there.slices());
  run.optimizer.refresh(compute, *step);
  return *step;
}

}  // namespace trireme
