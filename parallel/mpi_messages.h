// Helpers shared by the collectives on Place::cpu over MPI: the division of elements among the
// ranks, and the gathering of divided results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parallel/comm.h"

namespace trireme {

// Bytes of scratch memory: a piece of each rank's share is exchanged and summed at once. Pieces are
// few and large, since each is a wait for lanes whose threads share cores with the compute lanes.
constexpr int64_t kScratch = 16 << 20;

// First element of rank r's share of n elements. The first share is one of the longest.
inline int64_t share_begin(int64_t n, int64_t r, int64_t size) { return n / size * r + std::min(r, n % size); }

// Waits until all of near_ranks() have called it, too.
void meet_near(const Comm& comm);

// all = the shares of all ranks, n elements of so many bytes. This rank's own share is already in
// place.
void gather_shares(const Comm& comm, std::byte* all, int64_t n, int64_t element);

}  // namespace trireme
