// HostChoice: ranks and hosts of each attempt of a supervised run. Leaves out hosts that failed, and takes them back when a person
// says so.
#pragma once

#include <string>
#include <vector>

#include "train/run/attempt.h"
#include "train/run/launch_hosts.h"
#include "train/run/supervise.h"

namespace trireme {

// Host that the last attempt's end accuses; "" if none. Named by the run itself (76) or lost with all its processes, it is accused
// at once; otherwise after two failures of the same rank there in a row, without a new checkpoint, which `sure` says.
struct Accused {
  std::string host{};
  bool sure = false;
};
Accused accused_host(const std::vector<Attempt>& attempts);

std::string excluded_path(const std::string& run);  // RUN/excluded_hosts.txt: "HOST TIME REASON", or a comment after #

class HostChoice {
 public:
  // All arguments outlive it. Hosts are left out only if io.hosts is set.
  HostChoice(const SuperviseIo& io, const SuperviseOptions& options, const LaunchedTraining& asked, const RunConfig& config)
      : io_(io),
        options_(options),
        asked_(asked),
        config_(config),
        run_(config.train.directory()),
        most_(asked.ranks),
        ranks_(asked.ranks) {}

  // The command of the next attempt, after a look at the hosts and at the list of excluded ones. ConfigError if they are too few.
  LaunchedTraining next();
  // Concludes from how the attempts ended, the last one just now. `fewer`: the same rank was lost twice.
  void after(const std::vector<Attempt>& attempts, bool fewer);

 private:
  std::vector<std::string> excluded() const;
  std::vector<LaunchHost> free_hosts(const LaunchHosts& all) const;
  LaunchedTraining on_free_hosts(const LaunchHosts& all);
  LaunchedTraining resized(LaunchedTraining training);
  std::optional<LaunchedTraining> at_most(int64_t ranks) const;
  bool exclude(const std::string& name, const Attempt& attempt);
  bool write_down(const std::string& name, const Attempt& attempt);

  const SuperviseIo& io_;
  const SuperviseOptions& options_;
  const LaunchedTraining& asked_;
  const RunConfig& config_;
  const std::string run_;
  int64_t most_, ranks_;               // allowed; of the last attempt
  bool doubted_ = false;               // a host was left out that was not sure to be bad, and no checkpoint came since
  std::vector<std::string> left_out_;  // of the last attempt
};

}  // namespace trireme
