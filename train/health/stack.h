// Where a thread of this process is.
#pragma once

#include <string>

namespace trireme {

// The functions that thread `thread` (the system's id) is in, innermost first, separated by " < "; "" when it does not answer
// within a second. One call at a time. watch_stacks() first, once, before threads are stuck.
void watch_stacks();
std::string stack_of(int thread);

}  // namespace trireme
