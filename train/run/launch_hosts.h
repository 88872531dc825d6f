// LaunchHosts: the hosts that a launcher may use, from an Open MPI hostfile or a Slurm allocation, and a command line for some.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/run/launched_training.h"

namespace trireme {

struct LaunchHost {
  std::string name;
  int64_t slots = 0;   // ranks that it takes
  std::string line{};  // of the hostfile
};

struct LaunchHosts {
  std::vector<LaunchHost> hosts{};  // in the order in which they are used
  std::string source{};             // names the hostfile or the allocation, for people
  bool by_srun = false;             // srun is given the hosts to leave out, mpirun a hostfile
};

// Parses a hostfile: "node1 slots=4". ConfigError for a host without slots: nothing says then which hosts are spare.
std::vector<LaunchHost> parse_hostfile(const std::string& text, const std::string& path);
// Parses SLURM_JOB_NODELIST, such as "n[01-03,7],login1", and SLURM_TASKS_PER_NODE, such as "4(x3),2".
std::vector<LaunchHost> parse_allocation(const std::string& nodes, const std::string& tasks);

// The hosts of a command: those of `hostfile` if it is not empty, else of the command's own hostfile, of Open MPI's default
// hostfile, or of the Slurm allocation. ConfigError if the command cannot be given other hosts.
LaunchHosts find_hosts(const LaunchedTraining& training, const std::string& hostfile);

// Index of the host that calls itself `name`: by that name, its first part, or its address.
std::optional<size_t> find_host(const std::vector<LaunchHost>& hosts, const std::string& name);

// The first hosts that together take so many ranks; nullopt if all do not.
std::optional<std::vector<LaunchHost>> first_hosts(const std::vector<LaunchHost>& hosts, int64_t ranks);
int64_t slots_of(const std::vector<LaunchHost>& hosts);

// A command changed to use these hosts. mpirun gets `hostfile`, which has to hold hostfile_text(used).
LaunchedTraining on_hosts(LaunchedTraining training, const LaunchHosts& all, const std::vector<LaunchHost>& used,
                          const std::vector<std::string>& excluded, const std::string& hostfile);
std::string hostfile_text(const std::vector<LaunchHost>& used);

}  // namespace trireme
