// Direct I/O: the same bytes as through the system's cache, whatever their number and place, and
// whatever the system answers.
#include "checkpoint/io.h"

#include <errno.h>
#include <fcntl.h>

#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// Opens for direct I/O, and the transfers of these files; each can be made to fail.
struct Watched {
  std::set<int> direct;
  int64_t transfers = 0;
  bool refuses_to_open = false, all = false;    // all: also what goes through the cache
  std::function<ssize_t(size_t count)> answer;  // of a transfer: how many bytes it may move; negative: an error

  Io io() {
    Io io;
    io.open = [this, real = io.open](const char* path, int flags, mode_t mode) {
      const bool past_cache = (flags & O_DIRECT) != 0;
      if (past_cache && refuses_to_open) return errno = EINVAL, -1;
      const int fd = real(path, flags, mode);
      if (past_cache && fd >= 0) direct.insert(fd);
      return fd;
    };
    io.close = [this, real = io.close](int fd) { return direct.erase(fd), real(fd); };
    io.pwrite = [this, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) {
      const ssize_t most = asked(fd, count);
      return most < 0 ? most : real(fd, bytes, static_cast<size_t>(most), offset);
    };
    io.pread = [this, real = io.pread](int fd, void* bytes, size_t count, off_t offset) {
      const ssize_t most = asked(fd, count);
      if (most < 0 || most == static_cast<ssize_t>(count)) return most < 0 ? most : real(fd, bytes, count, offset);
      std::vector<std::byte> all(count + 4096);  // contents after a partial transfer do not matter
      auto* const whole = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(all.data()) + 4095) / 4096 * 4096);
      const ssize_t n = std::min(most, real(fd, whole, count, offset));
      if (n > 0) std::memcpy(bytes, whole, static_cast<size_t>(n));
      return n;
    };
    return io;
  }

 private:
  ssize_t asked(int fd, size_t count) {
    if (!all && !direct.contains(fd)) return static_cast<ssize_t>(count);
    ++transfers;
    return answer ? answer(count) : static_cast<ssize_t>(count);
  }
};

std::vector<char> pattern(int64_t count) {
  std::vector<char> bytes(static_cast<size_t>(count));
  uint64_t x = 1;
  for (char& byte : bytes) byte = static_cast<char>((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
  return bytes;
}

constexpr int64_t kHead = 4096 * 3;  // of a file, before the direct transfers

// Writes `count` bytes from memory `shift` bytes after a page's beginning, and reads them back
// likewise. One more byte on each side must not change.
void write_and_read(const Io& io, const std::string& path, int64_t count, int64_t shift) {
  const std::vector<char> bytes = pattern(count);
  std::vector<char> expected(static_cast<size_t>(kHead + count + 1), 'x');
  write_text(path, std::string(expected.begin(), expected.end()));
  std::copy(bytes.begin(), bytes.end(), expected.begin() + kHead);
  const DiskMemory memory(count + 8192);
  std::byte* const at = memory.data() + shift;
  {
    IoFile file = IoFile::open_to_write(io, path);
    file.bypass_cache();
    std::memcpy(at, bytes.data(), bytes.size());
    file.write_at(at, count, kHead);
    file.sync();
    file.close();
  }
  REQUIRE(read_text(path) == std::string(expected.begin(), expected.end()));
  IoFile file = IoFile::open_to_read(io, path);
  file.bypass_cache();
  std::memset(memory.data(), 7, static_cast<size_t>(count + 8192));
  file.read_at(at, count, kHead);
  REQUIRE(std::memcmp(at, bytes.data(), bytes.size()) == 0);
  REQUIRE(at[count] == std::byte{7});
  if (shift > 0) REQUIRE(at[-1] == std::byte{7});
  REQUIRE_THROWS_AS(file.read_at(at, count, kHead + 4096), DamagedCheckpoint);  // beyond its end
}

constexpr int64_t kCounts[] = {1, 4096, (256 << 10) - 1, 256 << 10, (1 << 20) + 4095, 3 << 20, (2 << 20) + 1, (17 << 20) + 77};

}  // namespace

TEST_CASE("what moves past the cache is what moves through it, from and to any memory") {
  const Scratch scratch;
  Watched disk;
  const Io io = disk.io();
  for (const int64_t count : kCounts)
    for (const int64_t shift : {0, 1, 64, 4095}) {
      INFO(count << " bytes, " << shift << " after a page's beginning");
      write_and_read(io, scratch / "file", count, shift);
    }
  CHECK(disk.direct.empty());  // all closed
  if (disk.transfers == 0) WARN("the file system here does not write past its cache: only the way through it was tested");
}

TEST_CASE("a file system that wants its cache, at the opening or later, gets it") {
  const Scratch scratch;
  for (const bool opens : {false, true})
    for (const int64_t count : kCounts) {
      INFO(opens << ", " << count << " bytes");
      Watched disk;
      disk.refuses_to_open = !opens;
      disk.answer = [](size_t) -> ssize_t { return errno = EOPNOTSUPP, -1; };
      write_and_read(disk.io(), scratch / "file", count, 64);
      if (!opens) CHECK(disk.transfers == 0);
      if (opens && count == 3 << 20 && disk.transfers == 0) WARN("the file system here does not write past its cache");
    }
}

TEST_CASE("transfers past the cache that fall short are carried on") {
  const Scratch scratch;
  for (const int64_t most : {0, 1, 4095, 4096, 4097, 100000, 1 << 20})
    for (const int64_t shift : {0, 64}) {
      INFO("at most " << most << " bytes at a time");
      Watched disk;
      bool interrupted = false;
      disk.answer = [&](size_t count) -> ssize_t {
        if ((interrupted = !interrupted)) return errno = EINTR, -1;
        const int64_t n = std::min(most, static_cast<int64_t>(count));
        return n / 4096 * 4096 == n || n == 0 ? n : (errno = EINVAL, -1);  // as a disk answers to parts of its blocks
      };
      write_and_read(disk.io(), scratch / "file", (2 << 20) + 5000, shift);
    }
}

TEST_CASE("a disk error that cached I/O meets as well is reported with file and place") {
  const Scratch scratch;
  write_text(scratch / "file", std::string(1 << 20, 'x'));
  Watched disk;
  const Io io = disk.io();
  disk.answer = [](size_t) -> ssize_t { return errno = EIO, -1; };
  const DiskMemory memory(1 << 20);
  std::memset(memory.data(), 1, 1 << 20);
  IoFile file = IoFile::open_to_write(io, scratch / "file");
  file.bypass_cache();
  file.write_at(memory.data(), 1 << 20, 0);  // through the cache
  disk.all = true;
  CHECK_THROWS_WITH(file.write_at(memory.data(), 1 << 20, 0),
                    ContainsSubstring("cannot write " + scratch / "file") && ContainsSubstring("Input/output error"));
  CHECK_THROWS_WITH(file.read_at(memory.data(), 1 << 20, 0), ContainsSubstring("cannot read " + scratch / "file"));
}

TEST_CASE("what is opened to go past the cache is the file that is open, not another that took its name") {
  const Scratch scratch;
  write_text(scratch / "file", std::string(1 << 20, 'a'));
  write_text(scratch / "other", std::string(1 << 20, 'b'));
  Watched disk;
  const Io io = disk.io();
  const IoFile opened = [&] {
    IoFile file = IoFile::open_to_read(io, scratch / "file");
    std::filesystem::rename(scratch / "other", scratch / "file");
    file.bypass_cache();
    return file;
  }();
  CHECK(disk.direct.empty());
  const DiskMemory memory(1 << 20);
  opened.read_at(memory.data(), 1 << 20, 0);
  CHECK(memory.data()[77] == std::byte{'a'});
}

TEST_CASE("a file system that cannot reserve blocks is written without, and a disk that fails at it is reported") {
  const Scratch scratch;
  std::ofstream(scratch / "file") << std::string(1 << 20, 'x');
  int reason = EOPNOTSUPP;
  int64_t asked = 0;
  Io io;
  io.fallocate = [&](int, int mode, off_t offset, off_t count) {
    CHECK(mode == 0);
    CHECK(offset == 0);
    asked = count;
    return errno = std::exchange(reason, 0), errno == 0 ? 0 : -1;
  };
  IoFile file = IoFile::open_to_write(io, scratch / "file");
  for (const int ignored : {EOPNOTSUPP, ENOSYS, EINVAL, EPERM, ENOSPC, EINTR, 0}) {
    reason = ignored;
    CHECK_NOTHROW(file.allocate());
    CHECK(std::exchange(asked, 0) == 1 << 20);
  }
  reason = EIO;
  CHECK_THROWS_WITH(file.allocate(), ContainsSubstring("cannot reserve 1048576 bytes for " + scratch / "file") &&
                                         ContainsSubstring("Input/output error"));
}
