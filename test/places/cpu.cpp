#include <cstdlib>

#include "test/reference/place.h"

namespace trireme {

Place tested_place() { return Place::cpu; }
bool thorough() { return true; }
bool multiplies_8_bits() { return true; }
std::byte* take_memory(int64_t bytes) { return static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes), 1)); }
void give_memory(std::byte* memory) noexcept { std::free(memory); }
void settle() {}

}  // namespace trireme
