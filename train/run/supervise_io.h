// SuperviseIo: everything that supervise asks of the system, as replaceable functions. Simulations replace them all.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "train/run/attempt.h"
#include "train/run/attempt_watch.h"
#include "train/run/launch_hosts.h"
#include "train/run/output_relay.h"

namespace trireme {

// The newest step of a run that a start would continue from, in either tier; -1: none.
int64_t newest_checkpoint(const std::string& run);

struct SuperviseIo {
  SuperviseIo() = default;                               // to be filled in
  explicit SuperviseIo(std::list<OutputRelay>& relays);  // the system; `relays` takes one for each start, and must outlive this

  std::function<pid_t(const std::vector<std::string>& words)>
      start;                                               // Error if no process can be made; 127 if the command cannot be
  std::function<std::optional<int>(pid_t process)> ended;  // exit code, 128 + n when signal n ended it; nullopt: it runs
  std::function<void(pid_t process, int signal)> send;
  std::function<RunProcesses(pid_t process)> processes;
  // The end of what it and its children wrote to stderr, after it has ended.
  std::function<std::string(pid_t process)> heard = [](pid_t) { return std::string(); };
  std::function<RunFiles(const std::string& run)> files;
  std::function<void(const std::string& run, const Attempt& attempt)> record;   // adds a line to RUN/attempts.jsonl
  std::function<void(const std::string& line)> say;                             // to the user
  std::function<int()> stop_signal;                                             // the last that requested a stop; 0: none
  std::function<LaunchHosts()> hosts{};                                         // to choose from; unset: the launcher chooses
  std::function<std::string(const std::string& path)> read;                     // a text; "" if there is none
  std::function<bool(const std::string& path, const std::string& text)> write;  // replaces a file, whole or not at all
  std::function<std::string()> utc;                                             // the time of day, for people
  std::function<Clock::time_point()> now;
  std::function<void(Clock::duration time)> sleep;
};

}  // namespace trireme
