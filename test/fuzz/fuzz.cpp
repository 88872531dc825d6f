#include "test/fuzz/fuzz.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace trireme::fuzz {

namespace {

struct Directory {
  std::string path =
      (std::filesystem::is_directory("/dev/shm") ? "/dev/shm/trireme-fuzz-" : "/tmp/trireme-fuzz-") + std::to_string(getpid());
  Directory() { std::filesystem::create_directories(path); }
  ~Directory() { std::filesystem::remove_all(path); }
};

}  // namespace

std::string directory() {
  static const Directory made;
  return made.path;
}

void write(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace trireme::fuzz
