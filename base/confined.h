// Work on foreign bytes in a child process that can do no harm. It has no files, no network, and a
// limit of time and memory; what kills it is a DataError of the file.
//
// Confinement is seccomp's (memory, the result's pipe and ending are all it may ask the kernel for)
// and landlock's, where the kernel has them, and always limits. Under sanitizers, and where no
// process can be started, the work is done in this process. The child has this thread alone: the
// work must not use MPI, OpenMP or locks that other threads may hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trireme {

struct ConfinedLimits {
  int64_t memory = 1 << 30;  // bytes beside those of this process
  int seconds = 20;          // of the processor
  int64_t result = 1 << 30;  // bytes
};

// The bytes that `work` returns. Its errors are DataErrors of the same words; a signal that ends it
// is one that begins with `name`.
std::string run_confined(const std::string& name, const std::function<std::string()>& work, const ConfinedLimits& limits = {});

// Does work in the child whose value cannot cross to this process, which does it again afterwards. What
// ends the child is not begun here.
void rehearse(const std::string& name, const std::function<void()>& work);

// Names what confines such work on this machine.
std::string confinement();

}  // namespace trireme
