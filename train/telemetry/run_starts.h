// RUN/starts.jsonl: one line for each start of a run, and its goodput.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

double program_start();  // when this program was loaded, in seconds since 1970

struct RunStart {
  double time = 0;                // start of the program, in seconds since 1970
  int64_t step = 0;               // of the checkpoint from which it continues; 0: none
  int64_t ranks = 1;              // processes
  std::string run{};              // the run's token
  std::string version{}, host{};  // of this program; of rank 0
};

// The starts of a run so far, this one included.
struct RunStarts {
  double first = 0;  // time of the first
  int64_t count = 0;

  // Seconds of the steps in metrics.jsonl, relative to all seconds since the first start: 0 to 1. The rest is starts, saves,
  // evaluations, time between starts, and steps that were done again.
  double goodput(double step_seconds, double now) const { return now > first ? std::min(1.0, step_seconds / (now - first)) : 0; }
};

// The whole lines of directory/starts.jsonl. Lines of older programs lack the version and the host.
std::vector<RunStart> recorded_starts(const std::string& directory);

// Adds a line to directory/starts.jsonl and counts those with the same token. What the disk refuses is left out.
RunStarts note_start(const std::string& directory, const RunStart& start);

}  // namespace trireme
