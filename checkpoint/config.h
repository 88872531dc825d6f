// The `checkpoint:` section: when to save and what to keep.
#pragma once

#include <string>

#include "base/key.h"

namespace trireme {

struct CheckpointConfig {
  int64_t every = 100, keep = 3, keep_every = 0, memory_every = 0;
  bool async = true;
  int64_t writers = 0;
  std::string command{};
  double command_timeout = 3600, scrub = 1;

  void visit(auto& keys) {
    keys("every", every, "steps between checkpoints; 0: save only at the end", at_least(0));
    keys("keep", keep, "newest valid checkpoints to keep", at_least(2));
    keys("keep_every", keep_every, "also keep every step that is a multiple of this; 0: none", at_least(0));
    keys("memory_every", memory_every,
         "steps between checkpoints in the nodes' memory, which outlive the processes; with several nodes each has a copy on "
         "another, so any one node may be lost; 0: none",
         at_least(0));
    keys("async", async,
         "write a checkpoint from a copy of the state in host memory while training continues; false: training waits, without a "
         "copy");
    keys("writers", writers,
         "threads with which a rank writes a checkpoint during the steps; raise it if the disk is not busy; 0: three for each "
         "compute thread, at most 8",
         between(0, 256));
    keys("command", command,
         "shell command after each checkpoint on disk is committed, for example to copy it elsewhere: gets its directory as "
         "TRIREME_CHECKPOINT, its step as TRIREME_STEP and the run's directory as TRIREME_RUN");
    keys("command_timeout", command_timeout,
         "seconds that checkpoint.command may take; after that its process group is ended, and the next one starts; 0: any time",
         at_least(0));
    keys("scrub", scrub, "MB a second of checkpoints on disk that each node reads and checks again in the background; 0: none",
         at_least(0));
  }
};

}  // namespace trireme
