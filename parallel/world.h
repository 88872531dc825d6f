// The ranks of this start: MPI up and down, and the environment that a launcher leaves.
//
// MPI is initialised only where a launcher's environment says that this process is one of several (or of a set of one), so a plain
// start works where MPI cannot.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace trireme {

class World {
 public:
  // ConfigError when MPI sees other ranks than the launcher started.
  World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // among the ranks of this node
  int local_size() const { return local_size_; }
  // Ranks of this node, itself included, that may run on one of this rank's cores: launchers bind ranks to cores, or leave all to
  // all.
  int core_sharers() const { return core_sharers_; }
  bool launched() const { return session_.up; }  // by a launcher: MPI is initialised

  // All ranks: what each rank of this node tells, in their order.
  std::vector<std::string> tell_node(const std::string& mine) const;
  // Ends every rank with this code, from any thread. The message has been printed before.
  [[noreturn]] void abort(ExitCode code) const;

 private:
  struct Session {  // initialises MPI and finalises it, also when World's constructor throws
    explicit Session(bool wanted);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    bool up;
    std::jthread parent_watch;  // ends this process when the launcher is gone: Open MPI's ranks would stay behind
  };

  Session session_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, core_sharers_ = 1;
};

// The ranks that a launcher's environment promises: 1 to many; 0 when there is a launcher that does not say; nothing without one.
// ConfigError when the environment holds no number there.
std::optional<int64_t> launched_ranks();

// An environment variable's value; "" when it is not set.
std::string environment(const std::string& name);
// For what this process starts, where nobody has said otherwise. Before it has threads.
void set_environment_default(const std::string& name, const std::string& value);
char** environment_block();  // all of it, "NAME=value" each, ended by nullptr

std::string host_name();

// Ends this process alone, without asking MPI or anybody else.
[[noreturn]] void end_at_once(ExitCode code);

}  // namespace trireme
