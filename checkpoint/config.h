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

  void visit(auto& keys) {
    keys("every", every, "steps between checkpoints; 0 saves only at the end", at_least(0));
    keys("keep", keep, "newest valid checkpoints to keep", at_least(2));
    keys("keep_every", keep_every, "steps that are a multiple of this are kept for ever, too; 0: none", at_least(0));
    keys("memory_every", memory_every,
         "steps between checkpoints in the nodes' memory, each with a copy on another node: they outlive the processes, and of "
         "several "
         "nodes any one; 0: none",
         at_least(0));
    keys("async", async,
         "training goes on from a copy of the state in host memory while that is written; false takes no such memory");
    keys("writers", writers,
         "threads by which a rank writes its part of a checkpoint beside the steps: more where they do not fill the disk; 0 takes "
         "three for each thread of its steps, 8 at most",
         between(0, 256));
    keys(
        "command", command,
        "run by /bin/sh for each checkpoint on disk once it is committed, with its directory as TRIREME_CHECKPOINT and its step as "
        "TRIREME_STEP: to copy it elsewhere");
  }
};

}  // namespace trireme
