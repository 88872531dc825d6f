// World: the ranks of this start, MPI's initialisation and finalisation, and the launcher's
// environment.
//
// MPI is initialised only if a launcher's environment says that this process is one of several (or
// of a set of one). So a plain start works even if MPI does not.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace trireme {

// Decides whether a rank continues without its launcher. Thread-safe.
class OrphanRule {
 public:
  void set(std::function<bool()> may_continue) {
    const std::lock_guard lock(mutex_);
    may_continue_ = std::move(may_continue);
  }
  bool may_continue() {
    const std::lock_guard lock(mutex_);
    return may_continue_ && may_continue_();
  }

 private:
  std::mutex mutex_;
  std::function<bool()> may_continue_;
};

// MPI starts once all ranks have begun. How long a rank waits for that.
struct StartPatience {
  std::function<void(const std::string& line)> say{};  // to the user; nullptr: silent
  double warn = 60, end = 600;                         // seconds until a warning, and until the rank ends
  bool until_watched = false;                          // the start lasts until World::watched(), not only while MPI starts
};

class World {
 public:
  // ConfigError if MPI sees another number of ranks than the launcher started. Ends the process with
  // ExitCode::hang if the start does not end.
  explicit World(const StartPatience& patience = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // number among the ranks of this node
  int local_size() const { return local_size_; }
  // Ranks of this node, itself included, that may run on one of this rank's cores. Launchers bind
  // ranks to cores, or leave all cores to all.
  int core_sharers() const { return core_sharers_; }
  void watched() { session_.started = true; }    // a watchdog looks after this rank from now on
  bool launched() const { return session_.up; }  // by a launcher: MPI is initialised

  // Gathers a text from each rank of this node, in their order. All ranks call it.
  std::vector<std::string> tell_node(const std::string& mine) const;
  // Asked ten times a second, from another thread: whether this process may continue if the one that started it is gone. Without a
  // rule it ends at once. nullptr removes the rule.
  void when_launcher_is_gone(std::function<bool()> may_continue) { session_.orphans.set(std::move(may_continue)); }

  // Ends every rank with this exit code, from any thread. Print the message before.
  [[noreturn]] void abort(ExitCode code) const;

 private:
  struct Session {  // initialises MPI; finalises it even if World's constructor throws
    Session(bool wanted, const StartPatience& patience);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    bool up;
    bool whole = false;  // the world was made; otherwise other ranks wait for this one, and MPI_Finalize would wait for them
    std::atomic<bool> started = false;  // the start is over
    OrphanRule orphans;
    std::jthread watch;  // ends this process when the launcher is gone: Open MPI would leave its ranks running
  };

  Session session_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, core_sharers_ = 1;
};

// Number of ranks that a launcher's environment announces, at least 1. 0 if a launcher does not
// say; nullopt without a launcher. ConfigError if the variable is not a number.
std::optional<int64_t> launched_ranks();

// An environment variable's value; "" if it is not set.
std::string environment(const std::string& name);
// Sets a variable for child processes unless it is set already. Call it before any thread starts.
void set_environment_default(const std::string& name, const std::string& value);
// All variables as "NAME=value", for a program of its own: under a launcher, without those of launchers.
std::vector<std::string> environment_outside_launcher();

std::string host_name();

// Name of threads that only watch others.
constexpr auto kWatcherThread = "trireme-watch";
void name_watcher_thread();  // the calling one

// Ends this process alone and at once, without MPI.
[[noreturn]] void end_at_once(ExitCode code);

}  // namespace trireme
