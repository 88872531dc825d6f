// Call stacks of this process's threads.
#pragma once

#include <string>

namespace trireme {

// Installs the signal handler for stack_of(). Call once, before any thread may be stuck.
void watch_stacks();
// Returns the functions on the stack of `thread` (the system's id), innermost first, separated by
// " < "; "" if the thread does not answer within one second. Not thread-safe.
std::string stack_of(int thread);

}  // namespace trireme
