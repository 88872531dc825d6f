// core_rate(): how fast a core turns an empty loop, which shows whether something shares it. Two
// threads of one physical core take turns. No counter of a virtual machine shows those of others.
#pragma once

namespace trireme {

// Turns per second of processor time of the calling thread; 0 if its clock did not move. Takes about 6 us. The loop's branch is
// the limit: one a cycle.
double core_rate();

}  // namespace trireme
