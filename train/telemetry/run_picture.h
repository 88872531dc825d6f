// RunPicture: the facts of a run that a page, a terminal or a report shows, as its directory has them at one moment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/telemetry/exit_facts.h"
#include "train/telemetry/run_history.h"
#include "train/telemetry/run_starts.h"

namespace trireme {

enum class RunState { running, silent, finished, stopped, failed };
std::string_view name_of(RunState state);

struct SavedState {  // a checkpoint on disk
  std::string name;
  int64_t step = 0, bytes = 0;
  double time = 0;      // when it was written, in seconds since 1970; 0: unknown
  std::string problem;  // why it cannot be used; "": all files are there
};

using FactRows = std::vector<std::pair<std::string, std::string>>;

struct RunPicture {
  std::string directory, title, config;  // config: the YAML text
  RunSchedule schedule{.steps = 0};      // steps 0: unknown
  RunState state = RunState::running;
  ExitFacts exit{};
  double now = 0;           // seconds since 1970
  double last_written = 0;  // when the run's files last changed
  std::vector<SavedState> checkpoints{};
  std::vector<RunStart> starts{};
  FactRows memory{};           // arenas of the rank that needs most: name, bytes
  FactRows facts{};            // model, device, mesh
  FactRows data{};             // from data.jsonl
  FactRows environment{};      // first lines of log.txt, host, and the program that reads
  int64_t generation = 0;      // changes when metrics.jsonl was replaced: all is new then
  int64_t read = 0, size = 0;  // bytes of metrics.jsonl
  bool more = false;           // lines of it wait to be read
  RunHistory history{};

  double silent() const { return now - last_written; }
  double elapsed() const { return history.step_seconds + history.eval_seconds; }
  double eta() const { return schedule.steps > 0 ? history.left.after(history.last.step) : 0; }
  // Seconds of recorded steps relative to all since the first start; NaN if that is not known.
  double goodput() const;
};

}  // namespace trireme
