#include "checkpoint/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace trireme {

namespace {

constexpr int64_t kTransfer = 16 << 20;      // bytes of one system call
constexpr int64_t kBlock = 4096;             // alignment of direct I/O in bytes, in memory as in the file
constexpr int64_t kLeastDirect = 256 << 10;  // bytes from which direct I/O pays: the transfer outweighs the latency
constexpr int64_t kBounce = 1 << 20;         // bytes copied at a time to or from unaligned memory

// This thread's buffer for copies to and from unaligned memory.
std::byte* bounce() {
  static thread_local const DiskMemory memory(kBounce);
  return memory.data();
}

bool is_multiple(const void* address, int64_t of) { return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(of) == 0; }

// By a description of its own, so that the offset of `directory` does not matter.
int list_entries(int directory, std::vector<std::string>& names) {
  const int fd = ::openat(directory, ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return -1;
  DIR* const entries = fdopendir(fd);
  if (entries == nullptr) return ::close(fd), -1;
  errno = 0;
  for (const dirent* entry = readdir(entries); entry != nullptr; entry = readdir(entries))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) names.emplace_back(entry->d_name);
  const int reason = errno;
  closedir(entries);
  errno = reason;
  return reason == 0 ? 0 : -1;
}

[[noreturn]] void fail_to_write(const std::string& what) { throw CheckpointError(text(what, ": ", strerror(errno))); }
[[noreturn]] void fail_to_read(const std::string& what) { throw DamagedCheckpoint(text(what, ": ", strerror(errno))); }

}  // namespace

Io::Io()
    : open([](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }),
      openat([](int directory, const char* name, int flags) { return ::openat(directory, name, flags); }),
      pread(::pread),
      pwrite(::pwrite),
      fallocate(::fallocate),
      ftruncate(::ftruncate),
      fsync(::fsync),
      close(::close),
      rename(::rename),
      mkdir(::mkdir),
      unlinkat(::unlinkat),
      fstatat(::fstatat),
      list(list_entries),
      create_hdf5([](const std::string& path, const std::vector<Hdf5Spec>& specs, const std::vector<Hdf5Attribute>& attributes) {
        return trireme::create_hdf5(path, specs, attributes);
      }) {}

DiskMemory::DiskMemory(int64_t bytes)
    : memory_(static_cast<std::byte*>(std::aligned_alloc(kBlock, static_cast<size_t>((bytes + kBlock - 1) / kBlock * kBlock)))) {
  require(memory_ != nullptr, text("out of memory for ", bytes, " bytes of a disk buffer"));
}

IoFile IoFile::open_to_read(const Io& io, const std::string& path) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // never blocks on a pipe
  const int fd = retried([&] { return io.open(path.c_str(), flags, 0); });
  if (fd < 0) fail_to_read("cannot open " + path);
  IoFile file(io, path, fd);
  struct stat facts;
  if (io.fstatat(fd, "", &facts, AT_EMPTY_PATH) != 0) fail_to_read("cannot look at " + path);
  if (!S_ISREG(facts.st_mode)) throw DamagedCheckpoint(path + " is not a regular file");
  return file;
}

IoFile IoFile::open_to_write(const Io& io, const std::string& path) {
  const int fd = retried([&] { return io.open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0); });
  if (fd < 0) fail_to_write("cannot open " + path + " for writing");
  return IoFile(io, path, fd);
}

IoFile IoFile::create(const Io& io, const std::string& path) {
  const int fd = retried([&] { return io.open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (fd < 0) fail_to_write("cannot make " + path);
  return IoFile(io, path, fd);
}

IoFile::~IoFile() {
  if (direct_ >= 0) io_->close(direct_);
  if (fd_ >= 0) io_->close(fd_);
}

void IoFile::bypass_cache() {
  if (direct_ >= 0 || size() < kLeastDirect) return;
  const int access = fcntl(fd_, F_GETFL) & O_ACCMODE;
  direct_ = retried([&] { return io_->open(path_.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_DIRECT, 0); });
  struct stat facts, direct_facts;
  if (direct_ >= 0 && fstat(fd_, &facts) == 0 && fstat(direct_, &direct_facts) == 0 && facts.st_ino == direct_facts.st_ino &&
      facts.st_dev == direct_facts.st_dev)
    return;
  if (direct_ >= 0) io_->close(std::exchange(direct_, -1));  // the path names another file by now
}

bool IoFile::goes_directly(int64_t count, int64_t offset) const {
  return direct_ >= 0 && count >= kLeastDirect && offset % kBlock == 0;
}

int64_t IoFile::read_directly(std::byte* bytes, int64_t count, int64_t offset) const {
  if (!goes_directly(count, offset)) return 0;
  for (int64_t done = 0; done < count;) {
    const int64_t rest = count - done;
    const bool straight = is_multiple(bytes + done, kBlock) && rest >= kBlock;
    const int64_t part =
        straight ? std::min(kTransfer, rest / kBlock * kBlock) : std::min(kBounce, (rest + kBlock - 1) / kBlock * kBlock);
    std::byte* const to = straight ? bytes + done : bounce();
    const ssize_t n = retried([&] { return io_->pread(direct_, to, static_cast<size_t>(part), offset + done); });
    const int64_t whole = n >= rest ? rest : n / kBlock * kBlock;
    if (whole <= 0) return done;
    if (!straight) std::memcpy(bytes + done, to, static_cast<size_t>(whole));
    done += whole;
  }
  return count;
}

int64_t IoFile::write_directly(const std::byte* bytes, int64_t count, int64_t offset) {
  if (!goes_directly(count, offset)) return 0;
  const int64_t end = count / kBlock * kBlock;
  for (int64_t done = 0; done < end;) {
    const bool straight = is_multiple(bytes + done, kBlock);
    const int64_t part = std::min(straight ? kTransfer : kBounce, end - done);
    if (!straight) std::memcpy(bounce(), bytes + done, static_cast<size_t>(part));
    const std::byte* const from = straight ? bytes + done : bounce();
    const ssize_t n = retried([&] { return io_->pwrite(direct_, from, static_cast<size_t>(part), offset + done); });
    if (n < kBlock) return done;
    done += n / kBlock * kBlock;
  }
  return end;
}

void IoFile::read_at(void* bytes, int64_t count, int64_t offset) const {
  for (int64_t done = read_directly(static_cast<std::byte*>(bytes), count, offset); done < count;) {
    const int64_t part = std::min(kTransfer, count - done);
    const ssize_t n =
        retried([&] { return io_->pread(fd_, static_cast<std::byte*>(bytes) + done, static_cast<size_t>(part), offset + done); });
    if (n < 0) fail_to_read(text("cannot read ", path_, " at byte ", offset + done));
    if (n == 0) throw DamagedCheckpoint(text(path_, " ends at byte ", offset + done, ", expected ", count - done, " bytes more"));
    done += n;
  }
}

void IoFile::write_at(const void* bytes, int64_t count, int64_t offset) {
  for (int64_t done = write_directly(static_cast<const std::byte*>(bytes), count, offset); done < count;) {
    const int64_t part = std::min(kTransfer, count - done);
    const ssize_t n = retried(
        [&] { return io_->pwrite(fd_, static_cast<const std::byte*>(bytes) + done, static_cast<size_t>(part), offset + done); });
    if (n < 0) fail_to_write(text("cannot write ", path_, " at byte ", offset + done));
    if (n == 0) throw CheckpointError(text("cannot write ", path_, " at byte ", offset + done, ": no byte was written"));
    done += n;
  }
}

int64_t IoFile::size() const {
  struct stat facts;
  if (io_->fstatat(fd_, "", &facts, AT_EMPTY_PATH) != 0) fail_to_read("cannot look at " + path_);
  return facts.st_size;
}

void IoFile::allocate() {
  const int64_t bytes = size();
  if (bytes == 0 || retried([&] { return io_->fallocate(fd_, 0, 0, bytes); }) == 0) return;
  if (errno == EIO) fail_to_write(text("cannot reserve ", bytes, " bytes for ", path_));
}

void IoFile::cut(int64_t bytes) {
  if (size() <= bytes) return;
  if (retried([&] { return io_->ftruncate(fd_, bytes); }) != 0) fail_to_write(text("cannot cut ", path_, " to ", bytes, " bytes"));
}

void IoFile::sync() {
  if (direct_ >= 0 && retried([&] { return io_->fsync(direct_); }) != 0) fail_to_write("cannot make " + path_ + " durable");
  if (retried([&] { return io_->fsync(fd_); }) != 0) fail_to_write("cannot make " + path_ + " durable");
}

void IoFile::close() {
  const int direct = std::exchange(direct_, -1);
  if (direct >= 0 && io_->close(direct) != 0 && errno != EINTR) fail_to_write("cannot close " + path_);
  if (io_->close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_to_write("cannot close " + path_);
}

void IoFile::drop_cached() const { posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

void make_directory(const Io& io, const std::string& path) {
  if (retried([&] { return io.mkdir(path.c_str(), 0777); }) != 0 && errno != EEXIST) fail_to_write("cannot make directory " + path);
}

void rename_path(const Io& io, const std::string& from, const std::string& to) {
  if (retried([&] { return io.rename(from.c_str(), to.c_str()); }) != 0) fail_to_write("cannot rename " + from + " to " + to);
}

void sync_directory(const Io& io, const std::string& path) {
  const int fd = retried([&] { return io.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY, 0); });
  if (fd < 0) fail_to_write("cannot open directory " + path);
  const int result = retried([&] { return io.fsync(fd); });
  const int reason = errno;
  io.close(fd);
  errno = reason;
  if (result != 0) fail_to_write("cannot make directory " + path + " durable");
}

std::vector<std::string> names_in(const Io& io, const std::string& directory) {
  std::vector<std::string> names;
  const int fd = retried([&] { return io.open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY, 0); });
  if (fd < 0 && errno == ENOENT && !path_exists(io, directory)) return names;
  if (fd < 0) fail_to_write("cannot list " + directory);
  const int result = retried([&] { return names.clear(), io.list(fd, names); });
  const int reason = errno;
  io.close(fd);
  errno = reason;
  if (result != 0) fail_to_write("cannot list " + directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::string sync_parents(const Io& io, const std::string& path) {
  std::filesystem::path directory = std::filesystem::absolute(path).lexically_normal();
  for (; directory.has_relative_path(); directory = directory.parent_path()) {
    const std::string parent = directory.parent_path();
    const int fd = retried([&] { return io.open(parent.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY, 0); });
    if (fd < 0 && (errno == EACCES || errno == EPERM)) return "";  // not one that this user has made
    const int result = fd < 0 ? -1 : retried([&] { return io.fsync(fd); });
    const int reason = errno;
    if (fd >= 0) io.close(fd);
    if (result != 0 && reason != EINVAL && reason != EROFS && reason != ENOTSUP)
      return text("cannot make the names in ", parent, " durable: ", strerror(reason));
  }
  return "";
}

bool path_exists(const Io& io, const std::string& path) {
  struct stat facts;
  return io.fstatat(AT_FDCWD, path.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace trireme
