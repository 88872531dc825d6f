// The disk and the software of a rank's host.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/build_facts.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "parallel/world.h"
#include "train/run/machine_trial.h"

namespace trireme {
namespace {

constexpr int64_t kDiskPiece = 4 << 20;
constexpr double kForDisk = 1;  // seconds
constexpr int64_t kProgramPiece = 1 << 20;

// Libraries whose versions change results or cannot be mixed.
constexpr std::array<std::string_view, 9> kNotedLibraries{"libmpi",      "libdnnl",  "libhdf5", "libgomp", "libcudart",
                                                          "libcublasLt", "libcudnn", "libnccl", "libcuda."};

std::string nearest_existing(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory);
  std::error_code error;
  while (!std::filesystem::exists(path, error) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path.string();
}

// Bytes a second of writes that are on the disk when it returns.
double write_for_a_second(const std::string& path, int64_t bytes) {
  const std::string piece(kDiskPiece, '\x5a');
  File file = File::create(path);
  int64_t done = 0;
  const auto begin = Clock::now();
  for (; done < bytes && seconds_since(begin) < kForDisk; done += kDiskPiece) {
    file.write_at(piece.data(), kDiskPiece, done);
    file.sync();
  }
  return static_cast<double>(done) / seconds_since(begin);
}

std::string digest_of_program() {
  const File program = File::open_to_read("/proc/self/exe");
  StreamDigest sum;
  std::string piece(kProgramPiece, '\0');
  for (int64_t at = 0, size = program.size(); at < size; at += kProgramPiece) {
    const int64_t count = std::min(kProgramPiece, size - at);
    program.read_at(piece.data(), count, at);
    sum.add(piece.data(), count);
  }
  return hex(sum.value());
}

// Full names of the files, which end in their versions.
std::string noted_libraries() {
  std::set<std::string> names;
  TextReader in(text_of_file("/proc/self/maps"));
  for (std::string line; std::getline(in, line);) {
    const std::string name = line.substr(line.rfind('/') + 1);
    if (std::ranges::any_of(kNotedLibraries, [&](std::string_view known) { return name.starts_with(known); })) names.insert(name);
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

}  // namespace

void try_disk(const std::string& directory, int64_t bytes, MachineFacts& facts) {
  const std::string here = nearest_existing(directory);
  std::error_code error;
  if (const std::filesystem::space_info space = std::filesystem::space(here, error); !error)
    facts.disk_free = static_cast<double>(space.available);
  if (bytes == 0 || (facts.disk_free >= 0 && facts.disk_free < static_cast<double>(2 * bytes))) return;
  const std::string path = here + "/.trireme-disk-check-" + host_name() + "-" + std::to_string(getpid());
  try {
    facts.disk_rate = write_for_a_second(path, bytes);
  } catch (const DataError& failed) {
    facts.disk_problem = failed.what();
  }
  std::filesystem::remove(path, error);
}

void note_software(MachineFacts& facts) {
  const BuildFacts build = build_facts();
  facts.program = "version " + build.version + " of commit " + build.commit.substr(0, 12) + " with digest " + digest_of_program();
  facts.libraries = noted_libraries();
}

}  // namespace trireme
