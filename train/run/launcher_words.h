// Reads from a launcher's words on stderr which rank has died, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct LostRank {
  int64_t rank = -1;
  std::string host{};   // "" if the launcher does not say
  std::string words{};  // the launcher's own
};
// The first rank that mpirun (Open MPI 4, 5) or srun reports as lost; nullopt if none. Lines may be wrapped and hold anything else.
std::optional<LostRank> lost_rank(std::string_view output);

}  // namespace trireme
