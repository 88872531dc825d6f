// Gives each file of some directories to a target once, to count the lines that they reach.
#include <filesystem>

#include "test/fuzz/fuzz.h"

int main(int count, char** words) {
  for (int i = 1; i < count; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(words[i])) {
      const std::string bytes = trireme::fuzz::read(entry.path());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
}
