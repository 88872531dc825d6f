// The C library's calls on names, directories and streams, for this whole program: those of
// simulated threads end in the World.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "test/simulation/files.h"
#include "test/simulation/next.h"

using namespace trireme::simulation;

namespace {

int rename_simulated(int from_directory, const char* from, int to_directory, const char* to) {
  Call call("rename", from);
  return rename_place(call, locate(call, from_directory, from), locate(call, to_directory, to));
}

int remove_simulated(int directory, const char* path, bool is_directory) {
  Call call(is_directory ? "rmdir" : "unlink", path);
  return remove_place(call, locate(call, directory, path), is_directory);
}

int mkdir_simulated(int directory, const char* path) {
  Call call("mkdir", path);
  return make_directory(call, locate(call, directory, path));
}

Listing* listing_of(DIR* directory) { return reinterpret_cast<Listing*>(directory); }

DIR* list_simulated(Call& call, int fd) {
  const OpenFile* const file = file_of(call, fd);
  if (file == nullptr || !file->disk->at(file->inode).directory) return call.error(ENOTDIR), nullptr;
  Listing& listing = call.process().listings.emplace_back();
  listing.descriptor = fd;
  listing.names = {{".", true}, {"..", true}};
  for (const auto& [name, inode] : file->disk->at(file->inode).entries)
    listing.names.emplace_back(name, file->disk->at(inode).directory);
  std::rotate(listing.names.begin(), listing.names.begin() + call->random.below(std::ssize(listing.names)), listing.names.end());
  return reinterpret_cast<DIR*>(&listing);
}

// The stream that a simulated process has opened; nullptr: one of the C library's.
Stream* stream_of(FILE* file) {
  World* const world = simulated();
  if (world == nullptr) return nullptr;
  for (Stream& stream : world->self().streams)
    if (reinterpret_cast<FILE*>(&stream) == file) return &stream;
  return nullptr;
}

int flags_of(const char* mode) {
  const bool both = std::strchr(mode, '+') != nullptr;
  if (mode[0] == 'r') return both ? O_RDWR : O_RDONLY;
  return (both ? O_RDWR : O_WRONLY) | O_CREAT | (mode[0] == 'w' ? O_TRUNC : O_APPEND);
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) noexcept {
  static const Next<int(const char*, const char*)> real("rename");
  return simulated() == nullptr ? real.call(from, to) : rename_simulated(AT_FDCWD, from, AT_FDCWD, to);
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  static const Next<int(int, const char*, int, const char*)> real("renameat");
  return simulated() == nullptr ? real.call(from_directory, from, to_directory, to)
                                : rename_simulated(from_directory, from, to_directory, to);
}

int link(const char* from, const char* to) noexcept {
  static const Next<int(const char*, const char*)> real("link");
  if (simulated() == nullptr) return real.call(from, to);
  Call call("link", from);
  return link_place(call, locate(call, AT_FDCWD, from), locate(call, AT_FDCWD, to));
}

int unlink(const char* path) noexcept {
  static const Next<int(const char*)> real("unlink");
  return simulated() == nullptr ? real.call(path) : remove_simulated(AT_FDCWD, path, false);
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  static const Next<int(int, const char*, int)> real("unlinkat");
  return simulated() == nullptr ? real.call(directory, path, flags)
                                : remove_simulated(directory, path, (flags & AT_REMOVEDIR) != 0);
}
int rmdir(const char* path) noexcept {
  static const Next<int(const char*)> real("rmdir");
  return simulated() == nullptr ? real.call(path) : remove_simulated(AT_FDCWD, path, true);
}
int remove(const char* path) noexcept {
  static const Next<int(const char*)> real("remove");
  if (simulated() == nullptr) return real.call(path);
  if (unlink(path) == 0) return 0;
  return errno == EISDIR ? rmdir(path) : -1;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const Next<int(const char*, mode_t)> real("mkdir");
  return simulated() == nullptr ? real.call(path, mode) : mkdir_simulated(AT_FDCWD, path);
}
int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  static const Next<int(int, const char*, mode_t)> real("mkdirat");
  return simulated() == nullptr ? real.call(directory, path, mode) : mkdir_simulated(directory, path);
}

DIR* opendir(const char* path) {
  static const Next<DIR*(const char*)> real("opendir");
  if (simulated() == nullptr) return real.call(path);
  Call call("opendir", path);
  const int fd = open_file(call, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  return fd < 0 ? nullptr : list_simulated(call, fd);
}
DIR* fdopendir(int fd) {
  static const Next<DIR*(int)> real("fdopendir");
  if (simulated() == nullptr) return real.call(fd);
  Call call("fdopendir");
  return list_simulated(call, fd);
}
dirent* readdir(DIR* directory) {
  static const Next<dirent*(DIR*)> real("readdir");
  if (simulated() == nullptr) return real.call(directory);
  Listing& listing = *listing_of(directory);
  if (listing.next == listing.names.size()) return nullptr;
  const auto& [name, is_directory] = listing.names[listing.next++];
  std::strncpy(listing.entry.d_name, name.c_str(), sizeof listing.entry.d_name - 1);
  listing.entry.d_type = is_directory ? DT_DIR : DT_REG;
  listing.entry.d_ino = 1;
  return &listing.entry;
}
dirent64* readdir64(DIR* directory) { return reinterpret_cast<dirent64*>(readdir(directory)); }
void rewinddir(DIR* directory) noexcept {
  static const Next<void(DIR*)> real("rewinddir");
  if (simulated() == nullptr) return real.call(directory);
  listing_of(directory)->next = 0;
}
int dirfd(DIR* directory) noexcept {
  static const Next<int(DIR*)> real("dirfd");
  return simulated() == nullptr ? real.call(directory) : listing_of(directory)->descriptor;
}
int closedir(DIR* directory) {
  static const Next<int(DIR*)> real("closedir");
  if (simulated() == nullptr) return real.call(directory);
  Call call("closedir");
  listing_of(directory)->open = false;
  const int result = close_file(call, listing_of(directory)->descriptor);
  auto& listings = call.process().listings;
  while (!listings.empty() && !listings.back().open) listings.pop_back();
  return result;
}

FILE* fopen(const char* path, const char* mode) {
  static const Next<FILE*(const char*, const char*)> real("fopen");
  if (simulated() == nullptr) return real.call(path, mode);
  Call call("fopen", path);
  const int fd = open_file(call, AT_FDCWD, path, flags_of(mode));
  if (fd < 0) return nullptr;
  Stream& stream = call.process().streams.emplace_back();
  stream.descriptor = fd;
  return reinterpret_cast<FILE*>(&stream);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
int fclose(FILE* file) {
  static const Next<int(FILE*)> real("fclose");
  Stream* const stream = stream_of(file);
  if (stream == nullptr) return real.call(file);
  Call call("fclose");
  stream->open = false;
  const int result = close_file(call, stream->descriptor);
  auto& streams = call.process().streams;
  while (!streams.empty() && !streams.back().open) streams.pop_back();
  return result;
}
int fileno(FILE* file) noexcept {
  static const Next<int(FILE*)> real("fileno");
  const Stream* const stream = stream_of(file);
  return stream == nullptr ? real.call(file) : stream->descriptor;
}
int fflush(FILE* file) {
  static const Next<int(FILE*)> real("fflush");
  return file == nullptr || stream_of(file) == nullptr ? real.call(file) : 0;
}

char* getcwd(char* buffer, size_t size) noexcept {
  static const Next<char*(char*, size_t)> real("getcwd");
  if (simulated() == nullptr || buffer == nullptr || size < 2) return real.call(buffer, size);
  return std::strcpy(buffer, "/");
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  static const Next<int(int, unsigned long, ...)> real("ioctl");
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (simulated() == nullptr) return real.call(fd, request, argument);
  errno = ENOTTY;
  return -1;
}
}
