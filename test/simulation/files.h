// Files of simulated processes: the system calls' meaning, over the disks of the World.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "test/simulation/world.h"

namespace trireme::simulation {

// A path, found.
struct Located {
  Disk* disk = nullptr;
  int parent = -1, inode = -1;  // -1: missing
  std::string name, path;       // the last component; the absolute path
  bool shared = false;          // on the shared disk
};
Located locate(const Call& call, int directory, const char* path);

OpenFile* file_of(const Call& call, int descriptor);  // nullptr: none
int open_file(Call& call, int directory, const char* path, int flags);
int close_file(Call& call, int descriptor);
ssize_t read_file(Call& call, int descriptor, void* bytes, size_t count, int64_t offset);
ssize_t write_file(Call& call, int descriptor, const void* bytes, size_t count, int64_t offset);
int sync_file(Call& call, int descriptor);
int describe(const Call& call, const Disk& disk, int inode, struct stat& facts);
int rename_place(Call& call, const Located& from, const Located& to);
int link_place(Call& call, const Located& from, const Located& to);
int remove_place(Call& call, const Located& place, bool directory);
int make_directory(Call& call, const Located& place);
int lock_file(Call& call, int descriptor, int operation);

}  // namespace trireme::simulation
