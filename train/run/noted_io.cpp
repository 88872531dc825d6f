#include "train/run/noted_io.h"

namespace trireme {

Io noted_io(Journal& journal) {
  Io io;
  io.open = [&journal, real = io.open](const char* path, int flags, mode_t mode) {
    const int file = real(path, flags, mode);
    return journal.disk_moved(), file;
  };
  io.pread = [&journal, real = io.pread](int fd, void* bytes, size_t count, off_t offset) {
    const ssize_t n = real(fd, bytes, count, offset);
    return journal.disk_moved(), n;
  };
  io.pwrite = [&journal, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) {
    const ssize_t n = real(fd, bytes, count, offset);
    return journal.disk_moved(), n;
  };
  io.fallocate = [&journal, real = io.fallocate](int fd, int mode, off_t offset, off_t count) {
    const int result = real(fd, mode, offset, count);
    return journal.disk_moved(), result;
  };
  io.fsync = [&journal, real = io.fsync](int fd) {
    const int result = real(fd);
    return journal.disk_moved(), result;
  };
  return io;
}

}  // namespace trireme
