// Job: a simulated run's settings. The programs of its processes are ranks of a training, their
// launcher, supervise, and the user's command for a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "test/simulation/truth.h"
#include "test/simulation/world.h"

namespace trireme::simulation {

constexpr auto kRuns = "/cluster", kRun = "/cluster/demo";

struct Job {
  CheckpointConfig checkpoint;
  int64_t ranks = 1, nodes = 1;
  int64_t steps = 6;
  int64_t step_time = 5 * kMillisecond;      // nanoseconds; about
  int64_t command_time = 30 * kMillisecond;  // likewise
  bool command_fails = false;
  int64_t doomed_at = -1;  // a rank dies during this step, in each attempt; -1: none
};

// The system that all processes of a schedule share.
struct Cluster {
  World& world;
  Truth& truth;
  const Job& job;
  int64_t jobs = 0;  // started so far
};

// The cluster of the running world; programs find it here, since the calls that they pass through
// have no room for it.
Cluster*& cluster();

// Starts mpirun with its ranks on a node; they end with it.
Process& start_job(Cluster& cluster, Process* parent);
// A program's exit code, as by the shell.
int code_of_status(int status);

int run_rank(Cluster& cluster);
int run_launcher(Cluster& cluster, int64_t job);
int run_supervisor(Cluster& cluster);
// A command of a rank for the shell, as a member of `group`, 0: of one of its own.
Process& start_command(World& world, int group, char* const variables[]);

}  // namespace trireme::simulation
