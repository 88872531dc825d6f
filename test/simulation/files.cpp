#include "test/simulation/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trireme::simulation {

namespace {

// The path without its last component, which goes to `name`.
std::string_view parent_of(std::string_view path, std::string& name) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  name = path.substr(slash + 1);
  return path.substr(0, slash);
}

// Reports to the invariants a change of names that has happened.
void report(const Call& call, const char* what, const Located& from, const Located& to) {
  if (from.shared && call->watch) call->watch(what, from.path, to.path);
}

bool is_planted(const Call& call, const char* what, const std::string& path) {
  return call->planted && call->planted(what, path) != 0;
}

}  // namespace

Located locate(const Call& call, int directory, const char* path) {
  std::string absolute = path;
  if (!absolute.starts_with('/')) {
    const OpenFile* const base = directory == AT_FDCWD ? nullptr : file_of(call, directory);
    absolute = (base != nullptr ? base->path : "") + "/" + absolute;
  }
  while (absolute.size() > 1 && absolute.ends_with("/.")) absolute.resize(absolute.size() - 2);
  Located place{.name = {}, .path = absolute};
  std::string_view rest;
  place.disk = &call->disk_of(absolute, call.process().node, rest);
  place.shared = place.disk == &call->shared;
  place.inode = place.disk->find(rest);
  const int parent = place.disk->find(parent_of(rest, place.name));
  if (parent >= 0 && place.disk->at(parent).directory) place.parent = parent;
  return place;
}

OpenFile* file_of(const Call& call, int descriptor) {
  auto& files = call.process().files;
  const auto index = static_cast<size_t>(descriptor - kFirstFile);
  return descriptor >= kFirstFile && index < files.size() && files[index].used ? &files[index] : nullptr;
}

int open_file(Call& call, int directory, const char* path, int flags) {
  Located place = locate(call, directory, path);
  const bool creates = (flags & O_CREAT) != 0, writes = (flags & O_ACCMODE) != O_RDONLY;
  OpenFile file{.disk = place.disk, .inode = place.inode, .path = place.path, .used = true, .writable = writes};
  file.appends = (flags & O_APPEND) != 0;
  file.terminal = place.path == "/dev/null";
  if (!file.terminal) {
    if (place.inode < 0 && !creates) return call.error(ENOENT);
    if (place.inode < 0 && place.parent < 0) return call.error(ENOENT);
    if (place.inode >= 0 && creates && (flags & O_EXCL) != 0) return call.error(EEXIST);
    if (call.fails(writes)) return -1;
    if (place.inode < 0) {
      file.inode = place.disk->make(false);
      place.disk->at(file.inode).changed = call->now;
      place.disk->change({{place.parent, place.name, file.inode}});
    }
    const bool is_directory = place.disk->at(file.inode).directory;
    if (is_directory && writes) return call.error(EISDIR);
    if (!is_directory && (flags & O_DIRECTORY) != 0) return call.error(ENOTDIR);
    if ((flags & O_TRUNC) != 0 && !place.disk->at(file.inode).bytes.empty()) place.disk->resize(file.inode, 0);
  }
  auto& files = call.process().files;
  const auto free = std::ranges::find(files, false, &OpenFile::used);
  const auto index = free - files.begin();
  if (free == files.end()) files.emplace_back();
  files[static_cast<size_t>(index)] = std::move(file);
  return kFirstFile + static_cast<int>(index);
}

int close_file(Call& call, int descriptor) {
  OpenFile* const file = file_of(call, descriptor);
  if (file == nullptr) return call.error(EBADF);
  if (!file->terminal && file->disk->at(file->inode).lock == file) file->disk->at(file->inode).lock = nullptr;
  file->used = false;
  return 0;
}

ssize_t read_file(Call& call, int descriptor, void* bytes, size_t count, int64_t offset) {
  OpenFile* const file = file_of(call, descriptor);
  if (file == nullptr) return call.error(EBADF);
  if (file->terminal) return 0;
  const Inode& inode = file->disk->at(file->inode);
  if (is_planted(call, "lock read", file->path)) {
    const std::string& mine = call.process().lock_words;
    return static_cast<ssize_t>(mine.copy(static_cast<char*>(bytes), count));
  }
  if (inode.directory) return call.error(EISDIR);
  if (call.fails(false)) return -1;
  const int64_t at = offset >= 0 ? offset : file->position;
  const int64_t there = std::max<int64_t>(0, static_cast<int64_t>(inode.bytes.size()) - at);
  size_t n = static_cast<size_t>(std::min<int64_t>(there, static_cast<int64_t>(count)));
  if (n > 1 && call->random.chance(call->weather.shorten))
    n = static_cast<size_t>(call->random.between(1, static_cast<int64_t>(n)));
  if (n > 0) std::memcpy(bytes, inode.bytes.data() + at, n);
  if (offset < 0) file->position += static_cast<int64_t>(n);
  return static_cast<ssize_t>(n);
}

ssize_t write_file(Call& call, int descriptor, const void* bytes, size_t count, int64_t offset) {
  OpenFile* const file = file_of(call, descriptor);
  if (file == nullptr || (!file->writable && !file->terminal)) return call.error(EBADF);
  if (file->terminal) return static_cast<ssize_t>(count);
  if (call.fails(true)) return -1;
  size_t n = count;
  if (n > 1 && call->random.chance(call->weather.shorten))
    n = static_cast<size_t>(call->random.between(1, static_cast<int64_t>(n)));
  Inode& inode = file->disk->at(file->inode);
  if (file->path.ends_with("/lock")) call.process().lock_words.assign(static_cast<const char*>(bytes), n);
  if (file->appends) file->position = static_cast<int64_t>(inode.bytes.size());
  file->disk->write(file->inode, offset >= 0 ? offset : file->position, {static_cast<const char*>(bytes), n});
  inode.changed = call->now;
  if (offset < 0) file->position += static_cast<int64_t>(n);
  return static_cast<ssize_t>(n);
}

int sync_file(Call& call, int descriptor) {
  const OpenFile* const file = file_of(call, descriptor);
  if (file == nullptr) return call.error(EBADF);
  if (file->terminal) return 0;
  const bool directory = file->disk->at(file->inode).directory;
  if (is_planted(call, directory ? "fsync directory" : "fsync", file->path)) return 0;
  if (call.fails(true)) {
    if (errno == EIO) file->disk->fail_sync(file->inode, call->random);
    return -1;
  }
  file->disk->sync(file->inode);
  return 0;
}

int describe(const Call& call, const Disk& disk, int inode, struct stat& facts) {
  if (inode < 0) return call.error(ENOENT);
  const Inode& node = disk.at(inode);
  facts = {};
  facts.st_ino = static_cast<ino_t>(inode) + 1;
  facts.st_dev = reinterpret_cast<uintptr_t>(&disk) & 0xffff;
  facts.st_mode = node.directory ? S_IFDIR | 0700 : S_IFREG | 0600;
  facts.st_uid = geteuid();
  facts.st_nlink = 1;
  facts.st_size = static_cast<off_t>(node.bytes.size());
  facts.st_mtim = {.tv_sec = node.changed / kSecond, .tv_nsec = node.changed % kSecond};
  return 0;
}

int rename_place(Call& call, const Located& from, const Located& to) {
  if (from.inode < 0 || to.parent < 0) return call.error(ENOENT);
  if (from.disk != to.disk) return call.error(EXDEV);
  if (to.inode >= 0) {
    const Inode &old = to.disk->at(to.inode), &moved = from.disk->at(from.inode);
    if (old.directory && !moved.directory) return call.error(EISDIR);
    if (!old.directory && moved.directory) return call.error(ENOTDIR);
    if (old.directory && !old.entries.empty()) return call.error(ENOTEMPTY);
  }
  if (call.fails(true)) return -1;
  from.disk->change({{from.parent, from.name, -1}, {to.parent, to.name, from.inode}});
  report(call, "rename", from, to);
  return 0;
}

int link_place(Call& call, const Located& from, const Located& to) {
  if (from.inode < 0 || to.parent < 0) return call.error(ENOENT);
  if (from.disk != to.disk) return call.error(EXDEV);
  if (to.inode >= 0) return call.error(EEXIST);
  if (call.fails(true)) return -1;
  from.disk->change({{to.parent, to.name, from.inode}});
  report(call, "link", from, to);
  return 0;
}

int remove_place(Call& call, const Located& place, bool directory) {
  if (place.inode < 0) return call.error(ENOENT);
  const Inode& node = place.disk->at(place.inode);
  if (node.directory && !directory) return call.error(EISDIR);
  if (!node.directory && directory) return call.error(ENOTDIR);
  if (!node.entries.empty()) return call.error(ENOTEMPTY);
  if (call.fails(true)) return -1;
  place.disk->change({{place.parent, place.name, -1}});
  report(call, directory ? "rmdir" : "unlink", place, place);
  return 0;
}

int make_directory(Call& call, const Located& place) {
  if (place.inode >= 0) return call.error(EEXIST);
  if (place.parent < 0) return call.error(ENOENT);
  if (call.fails(true)) return -1;
  (void)is_planted(call, "mkdir", place.path);
  place.disk->change({{place.parent, place.name, place.disk->make(true)}});
  report(call, "mkdir", place, place);
  return 0;
}

int lock_file(Call& call, int descriptor, int operation) {
  OpenFile* const file = file_of(call, descriptor);
  if (file == nullptr || file->terminal) return call.error(EBADF);
  Inode& inode = file->disk->at(file->inode);
  if ((operation & LOCK_UN) != 0) {
    if (inode.lock == file) inode.lock = nullptr;
    return 0;
  }
  if (is_planted(call, "flock", file->path)) return 0;
  if (inode.lock != nullptr && inode.lock != file) return call.error(EWOULDBLOCK);
  inode.lock = file, inode.locked = inode.version;
  return 0;
}

}  // namespace trireme::simulation
