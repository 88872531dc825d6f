#include "test/simulation/planted.h"

#include <string_view>

#include "checkpoint/directory_layout.h"
#include "test/simulation/job.h"

namespace trireme::simulation {

namespace {

// The oldest committed checkpoint goes, all but one.
void delete_oldest(World& world) {
  const std::string directory = std::string(kRun) + "/checkpoints";
  const int there = world.shared.find(directory);
  std::string oldest;
  int64_t count = 0;
  for (const auto& [name, inode] : world.shared.at(there).entries)
    if (name.size() == 13 && count++ == 0) oldest = name;
  if (count < 2) return;
  const Entries files = world.shared.at(world.shared.find(directory + "/" + oldest)).entries;
  for (const auto& [name, inode] : files) world.shared.change({{world.shared.find(directory + "/" + oldest), name, -1}});
  world.watch("rename", directory + "/" + oldest, directory + "/" + oldest + ".tmp");
}

}  // namespace

std::string name_of(Planted planted) {
  switch (planted) {
    case Planted::none:
      return "none";
    case Planted::directories_unsynced:
      return "directories_unsynced";
    case Planted::files_unsynced:
      return "files_unsynced";
    case Planted::lock_unchecked:
      return "lock_unchecked";
    case Planted::lock_shared:
      return "lock_shared";
    case Planted::deletes_early:
      return "deletes_early";
  }
  return "";
}

Planted planted_of(const std::string& name) {
  for (const Planted planted : kPlanted)
    if (name_of(planted) == name) return planted;
  return Planted::none;
}

void plant(World& world, Planted planted) {
  if (planted == Planted::none) return;
  world.planted = [&world, planted](const char* what, const std::string& path) {
    const std::string_view call = what;
    if (call == "fsync directory") return planted == Planted::directories_unsynced ? 1 : 0;
    if (call == "fsync") return planted == Planted::files_unsynced && path.find("shard-") != std::string::npos ? 1 : 0;
    if (call == "flock") return planted == Planted::lock_shared && path.ends_with("/lock") ? 1 : 0;
    if (call == "lock read") return planted == Planted::lock_unchecked && path.ends_with("/lock") ? 1 : 0;
    if (call == "mkdir" && planted == Planted::deletes_early && path.ends_with(".tmp")) delete_oldest(world);
    return 0;
  };
}

}  // namespace trireme::simulation
