// Truth: what a schedule has promised, and the checks that the promises hold. Its numbers are those
// of the list in docs/reliability.md.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/simulation/world.h"

namespace trireme::simulation {

class Truth {
 public:
  Truth(World& world, std::string run);

  // Called by programs.
  void saved(int64_t step, bool in_memory);  // rank 0 has the result of a save
  // A rank has restored `step`; 0: it begins anew. `differs`: the first difference from its state.
  void restored(int64_t step, const std::string& differs);
  void opened();               // rank 0 has opened the run
  void stopped(int64_t step);  // a job ends with 75 after this step
  void command_starts(const Process& process, const std::string& directory, int64_t step);
  void command_ends(const Process& process);
  void supervise_starts();
  void attempt(int64_t code);
  void gave_up();

  // Called by the schedule's faults.
  void damaged(int64_t step);  // bytes on disk changed, or the directory was removed
  void node_lost();
  void power_lost();
  void read_failed() { reads_fail_ = true; }
  void warned() { reads_fail_ = true; }  // names of directories are not durable
  void run_removed();
  void two_jobs() { two_jobs_ = true; }  // the lock may be lost from now on

  // Called at every change of a name on the shared disk.
  void changed(const char* call, const std::string& from, const std::string& to);
  void checked_lock();  // the running thread looks at the run's lock

  bool any_damaged() const { return !damaged_.empty(); }
  bool is_damaged(int64_t step) const { return damaged_.contains(step); }
  int64_t newest() const;  // reported, whole and on disk; 0: none
  int64_t commits() const { return commits_; }
  int64_t restores() const { return restores_; }

 private:
  struct File {
    std::string name;
    int inode;
    int64_t version;
  };
  // Files of a committed step, when its directory had got its name.
  struct Commit {
    int directory = -1;
    std::vector<File> files{};
    bool reported = false;
  };
  void require(int number, bool holds, const std::string& what);
  bool is_whole(const Commit& commit, int64_t step) const;
  bool holds_lock(const Process& process) const;
  bool job_holds_lock(const Process& process) const;  // its job's first rank does
  void check_writer(const std::string& from, const std::string& to);
  void note_commit(const std::string& path);
  void note_late(const std::string& directory);
  int64_t whole() const;

  World& world_;
  std::string run_, checkpoints_;
  std::map<int64_t, Commit> commits_on_disk_;
  std::set<int64_t> damaged_;
  std::set<std::string> late_;  // directories that ranks of earlier jobs have made since the newest has started
  int64_t in_memory_ = 0;  // newest that is promised from memory
  int64_t lost_nodes_ = 0, promised_ = 0, commits_ = 0, restores_ = 0;
  int64_t fruitless_ = 0, at_attempt_ = 0;  // attempts in a row without a new checkpoint; commits before the last one
  bool hopeless_ = false;                   // the last attempt ended with a code after which none helps
  bool reads_fail_ = false, two_jobs_ = false;
  std::map<const Process*, std::pair<int64_t, std::string>> commands_;
};

}  // namespace trireme::simulation
