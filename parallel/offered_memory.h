// OfferedMemory: memory that a process offers to others of its machine, and how they find it.
//
// They open it by the numbers of the process and of its file, which may name anything in another container. So both ends name
// their machine, and the memory begins with a mark that was drawn at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

// Processes with the same words see each other by number.
std::string machine_words();

struct OfferedMemory {
  std::string machine{};  // machine_words() of the process
  int64_t process = 0, file = -1, bytes = 0;
  uint64_t mark = 0;  // stands at the memory's begin, at least until all have looked
};

uint64_t random_mark();

// The memory of another process, to read; nullptr if it is not what was offered, or if the system refuses. Unmap it with munmap().
const std::byte* view_of(const OfferedMemory& offer);

}  // namespace trireme
