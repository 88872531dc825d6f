// The C library's calls on files, for this whole program: those of simulated threads end in the
// World.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "test/simulation/files.h"
#include "test/simulation/next.h"

using namespace trireme::simulation;

namespace {

int open_simulated(int directory, const char* path, int flags) {
  Call call("open", path);
  return open_file(call, directory, path, flags);
}

int stat_simulated(int directory, const char* path, struct stat* facts) {
  Call call("stat", path);
  const Located place = locate(call, directory, path);
  if (call->looked && place.shared) call->looked(place.path);
  return describe(call, *place.disk, place.inode, *facts);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static const Next<int(const char*, int, ...)> real("open");
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return simulated() == nullptr ? real.call(path, flags, mode) : open_simulated(AT_FDCWD, path, flags);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return open(path, flags, mode);
}
int __open_2(const char* path, int flags) { return open(path, flags, 0); }
int __open64_2(const char* path, int flags) { return open(path, flags, 0); }
int openat(int directory, const char* path, int flags, ...) {
  static const Next<int(int, const char*, int, ...)> real("openat");
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return simulated() == nullptr ? real.call(directory, path, flags, mode) : open_simulated(directory, path, flags);
}
int __openat_2(int directory, const char* path, int flags) { return openat(directory, path, flags, 0); }

int close(int fd) {
  static const Next<int(int)> real("close");
  if (simulated() == nullptr) return real.call(fd);
  Call call("close");
  return close_file(call, fd);
}

ssize_t read(int fd, void* bytes, size_t count) {
  static const Next<ssize_t(int, void*, size_t)> real("read");
  if (simulated() == nullptr) return real.call(fd, bytes, count);
  Call call("read");
  return read_file(call, fd, bytes, count, -1);
}
ssize_t __read_chk(int fd, void* bytes, size_t count, size_t) { return read(fd, bytes, count); }
ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  static const Next<ssize_t(int, void*, size_t, off_t)> real("pread");
  if (simulated() == nullptr) return real.call(fd, bytes, count, offset);
  Call call("pread");
  return read_file(call, fd, bytes, count, offset);
}
ssize_t pread64(int fd, void* bytes, size_t count, off64_t offset) { return pread(fd, bytes, count, offset); }
ssize_t __pread_chk(int fd, void* bytes, size_t count, off_t offset, size_t) { return pread(fd, bytes, count, offset); }

ssize_t write(int fd, const void* bytes, size_t count) {
  static const Next<ssize_t(int, const void*, size_t)> real("write");
  if (simulated() == nullptr) return real.call(fd, bytes, count);
  Call call("write", fd <= 2 ? std::string_view(static_cast<const char*>(bytes), count) : "");
  return fd <= 2 ? static_cast<ssize_t>(count) : write_file(call, fd, bytes, count, -1);
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static const Next<ssize_t(int, const void*, size_t, off_t)> real("pwrite");
  if (simulated() == nullptr) return real.call(fd, bytes, count, offset);
  Call call("pwrite");
  return write_file(call, fd, bytes, count, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) { return pwrite(fd, bytes, count, offset); }
ssize_t writev(int fd, const iovec* parts, int count) {
  static const Next<ssize_t(int, const iovec*, int)> real("writev");
  if (simulated() == nullptr) return real.call(fd, parts, count);
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t n = write(fd, parts[i].iov_base, parts[i].iov_len);
    if (n < 0) return all > 0 ? all : n;
    all += n;
    if (static_cast<size_t>(n) < parts[i].iov_len) break;
  }
  return all;
}

off_t lseek(int fd, off_t offset, int from) noexcept {
  static const Next<off_t(int, off_t, int)> real("lseek");
  if (simulated() == nullptr) return real.call(fd, offset, from);
  const Call call("lseek");
  OpenFile* const file = file_of(call, fd);
  if (file == nullptr) return call.error(EBADF);
  const auto end = static_cast<int64_t>(file->disk->at(file->inode).bytes.size());
  return file->position = offset + (from == SEEK_SET ? 0 : from == SEEK_CUR ? file->position : end);
}
off64_t lseek64(int fd, off64_t offset, int from) noexcept { return lseek(fd, offset, from); }

int fsync(int fd) {
  static const Next<int(int)> real("fsync");
  if (simulated() == nullptr) return real.call(fd);
  Call call("fsync");
  return sync_file(call, fd);
}
int fdatasync(int fd) { return fsync(fd); }

int fallocate(int fd, int mode, off_t offset, off_t count) {
  static const Next<int(int, int, off_t, off_t)> real("fallocate");
  if (simulated() == nullptr) return real.call(fd, mode, offset, count);
  Call call("fallocate");
  return call.fails(true) ? -1 : 0;
}

int ftruncate(int fd, off_t size) noexcept {
  static const Next<int(int, off_t)> real("ftruncate");
  if (simulated() == nullptr) return real.call(fd, size);
  Call call("ftruncate");
  OpenFile* const file = file_of(call, fd);
  if (file == nullptr) return call.error(EBADF);
  if (call.fails(true)) return -1;
  file->disk->resize(file->inode, size);
  return 0;
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }

int fstat(int fd, struct stat* facts) noexcept {
  static const Next<int(int, struct stat*)> real("fstat");
  if (simulated() == nullptr) return real.call(fd, facts);
  const Call call("fstat");
  const OpenFile* const file = file_of(call, fd);
  return file == nullptr ? call.error(EBADF) : describe(call, *file->disk, file->inode, *facts);
}
int fstat64(int fd, struct stat64* facts) noexcept { return fstat(fd, reinterpret_cast<struct stat*>(facts)); }
int stat(const char* path, struct stat* facts) noexcept {
  static const Next<int(const char*, struct stat*)> real("stat");
  return simulated() == nullptr ? real.call(path, facts) : stat_simulated(AT_FDCWD, path, facts);
}
int stat64(const char* path, struct stat64* facts) noexcept { return stat(path, reinterpret_cast<struct stat*>(facts)); }
int lstat(const char* path, struct stat* facts) noexcept {
  static const Next<int(const char*, struct stat*)> real("lstat");
  return simulated() == nullptr ? real.call(path, facts) : stat_simulated(AT_FDCWD, path, facts);
}
int lstat64(const char* path, struct stat64* facts) noexcept { return lstat(path, reinterpret_cast<struct stat*>(facts)); }
int fstatat(int directory, const char* path, struct stat* facts, int flags) noexcept {
  static const Next<int(int, const char*, struct stat*, int)> real("fstatat");
  return simulated() == nullptr ? real.call(directory, path, facts, flags) : stat_simulated(directory, path, facts);
}
int fstatat64(int directory, const char* path, struct stat64* facts, int flags) noexcept {
  return fstatat(directory, path, reinterpret_cast<struct stat*>(facts), flags);
}

int flock(int fd, int operation) noexcept {
  static const Next<int(int, int)> real("flock");
  if (simulated() == nullptr) return real.call(fd, operation);
  Call call("flock");
  return lock_file(call, fd, operation);
}

int fcntl(int fd, int command, ...) {
  static const Next<int(int, int, ...)> real("fcntl");
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  if (simulated() == nullptr) return real.call(fd, command, argument);
  return command == F_GETFL ? O_RDWR : 0;
}
int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return fcntl(fd, command, argument);
}

int posix_fadvise(int fd, off_t offset, off_t count, int advice) noexcept {
  static const Next<int(int, off_t, off_t, int)> real("posix_fadvise");
  return simulated() == nullptr ? real.call(fd, offset, count, advice) : 0;
}

int isatty(int fd) noexcept {
  static const Next<int(int)> real("isatty");
  return simulated() == nullptr ? real.call(fd) : 0;
}
}
