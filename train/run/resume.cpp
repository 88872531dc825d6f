#include "train/run/resume.h"

#include <algorithm>
#include <array>
#include <optional>

#include "checkpoint/problem.h"
#include "train/config/keys.h"
#include "train/hub/init_from.h"
#include "train/run/known_progress.h"
#include "train/run/save_scheduler.h"
#include "train/step/copy_state.h"
#include "train/step/host_state.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

bool changes_the_run(const RunConfig& config, const std::string& difference) {
  return std::ranges::any_of(list_keys(config),
                             [&](const Key& key) { return key.limit.of_the_run && difference.starts_with(key.full() + ":"); });
}

// Number format of the products with weights.
std::string products_of(const RunConfig& config) {
  if (config.kernels.matmul != MatmulDtype::fp8) return "bf16";
  return "fp8 but for " + std::to_string(config.kernels.bf16_layers) + " layers at each end";
}

// Keys that decide which tensors there are: no option makes such a checkpoint fit.
bool changes_tensors(const std::string& difference) {
  constexpr std::array kKeys{"family", "layers", "width", "heads",   "kv_heads", "head_size",
                             "ffn",    "vocab",  "tied",  "qk_norm", "qkv_bias"};
  return std::ranges::any_of(kKeys, [&](const char* key) { return difference.starts_with("model." + std::string(key) + ":"); });
}

// One line for one difference; for several, a line each and the remedy.
std::string refusal_of(const std::vector<std::string>& differences) {
  constexpr size_t kMost = 8;
  const bool several = differences.size() > 1;
  std::string lines;
  for (size_t i = 0; i < std::min(differences.size(), kMost); ++i) lines += differences[i] + (several ? "\n" : ": ");
  if (differences.size() > kMost) lines += text("... and ", differences.size() - kMost, " more\n");
  lines += "the checkpoint belongs to another run";
  lines += several ? ": take these back" : "; take this back";
  if (std::ranges::any_of(differences, changes_tensors)) return lines + ", or choose another train.name";
  return lines + ", choose another train.name, or continue with --resume-allow";
}

// Missing is not new: all ranks refuse to start again from step 0 if rank 0 finds traces of a checkpoint on disk.
void refuse_missing(const TrainState& run, Checkpoints& checkpoints) {
  std::string problem;
  if (run.mesh.first()) {
    const std::string directory = run.config.train.directory();
    const KnownProgress known = known_progress(directory);
    if (known.step > 0) {
      problem = missing_checkpoints(directory, known);
      checkpoints.note_lost(known.step);  // exit.json is about to be replaced
    }
  }
  throw_together<CheckpointError>(run.mesh.all(), problem);
}

}  // namespace

std::vector<std::string> compare_for_resume(const RunConfig& config, const std::string& saved, bool allow) {
  std::vector<std::string> changes, refused;
  const RunConfig before = parse_saved_config("the checkpoint's config", saved);
  for (const std::string& difference : differences(before, config)) {
    if (difference.starts_with("train.name:") || difference.starts_with("train.runs:")) continue;
    changes.push_back("changed since the checkpoint: " + difference);
    if (changes_the_run(config, difference)) refused.push_back(difference);
  }
  if (const std::string was = products_of(before), is = products_of(config); was != is && config.kernels.dtype == StepDtype::bf16)
    refused.push_back("kernels.matmul: products in " + was + " -> " + is);
  if (!refused.empty() && !allow) throw ConfigError(refusal_of(refused));
  return changes;
}

Layout saved_layout(const std::string& config, int64_t ranks) {
  return [saved = parse_saved_config("the checkpoint's config", config), ranks](int64_t rank) {
    Device device(Place::none);
    const Mesh mesh(rank, ranks, saved.parallel);
    return state_slices(TrainState(saved, mesh, device, {}), Ownership::saved);
  };
}

void initialise(const RunConfig& config, TrainState& run, const std::function<void()>& moved) {
  Stream& compute = run.device.compute();
  run.optimizer.initialise(compute, config.model.init_std, config.model.layers);
  if (config.train.init_from.empty()) return;
  HostState host(run.device, run.optimizer.masters(), Copies::where_needed);
  host.fetch();
  host.wait();
  init_from(config, host.slices(), run.mesh.all(), moved);
  host.store();
  run.optimizer.begin_round(compute);
  run.optimizer.refresh(compute, 0);
  if (run.mesh.first()) say("weights from " + config.train.init_from);
}

int64_t restore(TrainState& run, Checkpoints& checkpoints, const ResumeChoice& resume, StepStatistics& history, Journal& journal) {
  const RunConfig& config = run.config;
  Stream& compute = run.device.compute();
  run.sync.copies().initialise(compute, config.train.seed);
  std::optional<HostState> host(std::in_place, run.device, state_slices(run, Ownership::held), Copies::where_needed);
  if (run.sync.copies().compresses()) host->fetch(), host->wait();  // what the checkpoint lacks stays as it is
  CheckpointState state = state_of(config, host->slices(), 0, history);
  std::vector<std::string> changes;
  CopyReader copies(run.mesh.copy_group().rank(), run.mesh.copies());
  state.accept = [&](const Manifest& saved) {
    changes = compare_for_resume(config, saved.config, resume.allow_changes);
    state.slices = copies.adapted(host->slices(), [&](const std::string& name) {
      const TensorEntry* const tensor = find_tensor(saved, name);
      return tensor == nullptr ? std::vector<int64_t>() : tensor->shape;
    });
  };
  state.may_be_left = may_be_left;
  state.layout = saved_layout;
  std::optional<int64_t> step;
  if (resume.from == "auto") {
    step = checkpoints.restore(state);
    if (!step) refuse_missing(run, checkpoints);
  } else if (resume.from != "never")
    step = checkpoints.restore_from(resume.from, state);
  const auto tell = [&](const std::string& line) {
    if (run.mesh.first()) complain(line);
  };
  for (const std::string& warning : checkpoints.take_warnings()) tell(warning);
  if (!step) {
    history.load({}, 0);
    host.reset();
    initialise(config, run, [&] { journal.disk_moved(); });
    return 0;
  }
  for (const std::string& line : changes) tell(line);
  for (const std::string& line : copies.changes()) tell(line);
  history.load(state.counters, *step);
  copies.add_up();
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
