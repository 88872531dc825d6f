// Helpers of the fuzz targets. Each target is one function that libFuzzer calls with some bytes.
// The program may refuse them with its own errors; what it accepts must hold. Anything else ends
// the process, and the bytes are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trireme::fuzz {

inline std::string_view words(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

inline void must_hold(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// A directory in memory for what is only read from files.
std::string directory();
void write(const std::string& path, std::string_view content);
std::string read(const std::string& path);

}  // namespace trireme::fuzz
