// Reads from a launcher's words on stderr which rank has died, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

inline constexpr auto kNodeLost = "node lost";       // a cause: with its processes
inline constexpr auto kUnreachable = "unreachable";  // a cause: nothing could be started there

struct LostRank {
  int64_t rank = -1;    // -1: a whole host
  std::string host{};   // "" if the launcher does not say
  std::string words{};  // the launcher's own
  std::string cause = "lost";
};
// The first rank or host that mpirun (Open MPI 4, 5) or srun reports as lost; nullopt if none. Lines may be wrapped and hold
// anything else.
std::optional<LostRank> lost_rank(std::string_view output);

}  // namespace trireme
