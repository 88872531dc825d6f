// LaunchedTraining: a command that starts `trireme train`, taken apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct LaunchedTraining {
  std::vector<std::string> words;
  std::string config;            // what `train` is given
  std::vector<std::string> set;  // its --set
  int64_t ranks = 1;
  std::optional<size_t> ranks_at;  // the word that holds the number, or ends with it after '='
  bool by_mpirun = false;

  // The same without --resume: it continues the run's own newest checkpoint.
  LaunchedTraining from_newest() const;
  // The same with so many ranks, and settings ("--set parallel.tp=2 --set ...") that override those before.
  LaunchedTraining with(int64_t other_ranks, const std::string& settings) const;
};
// True of Open MPI's launchers, by their names.
bool is_mpirun(const std::string& program);
// ConfigError when the command starts no `train`.
LaunchedTraining take_apart(const std::vector<std::string>& command);

}  // namespace trireme
