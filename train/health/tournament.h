// Rounds of a tournament: each rank meets each other one once, and every rank is busy in every round.
//
// The circle method: Kirkman, "On a problem in combinations", 1847.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace trireme {

// Rounds in which all pairs meet: n - 1, or n for an odd number of ranks, of which one rests in each round.
inline int64_t tournament_rounds(int64_t ranks) { return ranks < 2 ? 0 : ranks % 2 == 0 ? ranks - 1 : ranks; }

// The rank that `rank` meets; -1: it rests.
inline int64_t opponent(int64_t rank, int64_t ranks, int64_t round) {
  const int64_t circle = tournament_rounds(ranks);
  if (circle == 0) return -1;
  const bool even = ranks % 2 == 0;
  if (even && rank == ranks - 1) return round * ((circle + 1) / 2) % circle;  // the one whose double is the round
  const int64_t other = (round - rank % circle + circle) % circle;
  if (other != rank) return other;
  return even ? ranks - 1 : -1;
}

// All rounds, in an order of which each beginning is spread evenly over the distances between ranks.
inline std::vector<int64_t> spread_rounds(int64_t ranks) {
  const int64_t rounds = tournament_rounds(ranks);
  int64_t stride = static_cast<int64_t>(static_cast<double>(rounds) * 0.6180339887) | 1;
  while (rounds > 0 && std::gcd(stride, rounds) != 1) ++stride;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rounds; ++i) order.push_back(i * stride % rounds);
  return order;
}

}  // namespace trireme
