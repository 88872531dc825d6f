// Death and errors at every call of a save: whatever happens, the newest committed checkpoint loads, and the next save works.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "checkpoint/reader.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

enum class Fault { none, die, die_after_half, eio, enospc, eintr, shorten };

// State that a disk may lose when the machine goes down: contents of files and entries of
// directories that nobody synced.
class Unsynced {
 public:
  void wrote(const std::string& path) { files_.insert(path); }
  void synced(const std::string& path) {
    files_.erase(path);
    std::erase_if(renames_, [&](const auto& r) { return std::filesystem::path(r.second).parent_path() == path; });
  }
  void renamed(const std::string& from, const std::string& to) {
    follow(from, to);
    renames_.emplace_back(from, to);
  }
  // The subset of losses with these bits: newest renames first, then files, whose contents become
  // zeros of half their size.
  void lose(unsigned which) {
    for (; !renames_.empty(); which >>= 1) {
      const auto [from, to] = renames_.back();
      renames_.pop_back();
      if ((which & 1) && rename(to.c_str(), from.c_str()) == 0) follow(to, from);
    }
    for (const std::string& file : files_) {
      if ((which & 1) && std::filesystem::exists(file)) write_text(file, std::string(std::filesystem::file_size(file) / 2, '\0'));
      which >>= 1;
    }
  }

 private:
  // Records a change of a name: of a file, or of the directory that contains it.
  void follow(const std::string& from, const std::string& to) {
    const auto now = [&](const std::string& path) {
      return path == from || path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
    };
    std::set<std::string> files;
    for (const std::string& file : files_) files.insert(now(file));
    files_ = files;
    for (auto& [a, b] : renames_) a = now(a), b = now(b);
  }

  std::set<std::string> files_;
  std::vector<std::pair<std::string, std::string>> renames_;
};

// An Io whose n-th call fails. Syncs are only recorded: the tests discard unsynced data themselves.
class FaultyDisk {
 public:
  FaultyDisk(int64_t fail_at, Fault fault, unsigned lost = 0) : fail_at_(fail_at), fault_(fault), lost_(lost) {}
  FaultyDisk(const FaultyDisk&) = delete;

  int64_t calls() const { return calls_; }
  void heal() { fault_ = Fault::none; }
  void lose_unsynced() { unsynced_.lose(~0u); }

  Io io() {
    Io io;
    io.open = [this, real = io.open](const char* path, int flags, mode_t mode) {
      if (fails()) return -1;
      const int fd = real(path, flags, mode);
      paths_[fd] = path;
      return fd;
    };
    io.pread = [this, real = io.pread](int fd, void* bytes, size_t count, off_t offset) -> ssize_t {
      if (fails()) return -1;
      return real(fd, bytes, shortened(count), offset);
    };
    io.pwrite = [this, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) -> ssize_t {
      unsynced_.wrote(paths_[fd]);
      if (fault_ == Fault::die_after_half && calls_ + 1 == fail_at_) (void)real(fd, bytes, count / 2, offset);
      if (fails()) return -1;
      return real(fd, bytes, shortened(count), offset);
    };
    io.fallocate = [this, real = io.fallocate](int fd, int mode, off_t offset, off_t count) {
      return fails() ? -1 : real(fd, mode, offset, count);
    };
    io.ftruncate = [this, real = io.ftruncate](int fd, off_t bytes) { return fails() ? -1 : real(fd, bytes); };
    io.fsync = [this](int fd) {
      if (fails()) return -1;
      unsynced_.synced(paths_[fd]);
      return 0;
    };
    io.close = [this, real = io.close](int fd) {
      const bool failing = fails();
      const int result = real(fd);
      return failing ? -1 : result;
    };
    io.rename = [this, real = io.rename](const char* from, const char* to) {
      if (fails()) return -1;
      const int result = real(from, to);
      if (result == 0) unsynced_.renamed(from, to);
      return result;
    };
    io.mkdir = [this, real = io.mkdir](const char* path, mode_t mode) { return fails() ? -1 : real(path, mode); };
    io.openat = [this, real = io.openat](int from, const char* name, int flags) { return fails() ? -1 : real(from, name, flags); };
    io.unlinkat = [this, real = io.unlinkat](int from, const char* name, int flags) {
      return fails() ? -1 : real(from, name, flags);
    };
    io.list = [this, real = io.list](int directory, auto& names) { return fails() ? -1 : real(directory, names); };
    io.create_hdf5 = [this, real = io.create_hdf5](const std::string& path, const auto& specs, const auto& attributes) {
      if (fails()) throw DataError("the disk refuses " + path);
      unsynced_.wrote(path);
      return real(path, specs, attributes);
    };
    return io;
  }

 private:
  // Counts a call; true, with errno, if it is the one to fail.
  bool fails() {
    errno_of_failure_ = 0;
    const bool now = ++calls_ == fail_at_ || (fault_ == Fault::enospc && calls_ > fail_at_ && calls_ < fail_at_ + 3);
    if (!now || fault_ == Fault::none) return false;
    if (fault_ == Fault::die || fault_ == Fault::die_after_half) {
      unsynced_.lose(lost_);
      _exit(9);
    }
    if (fault_ == Fault::shorten) return shorten_ = true, false;
    errno = fault_ == Fault::eio ? EIO : fault_ == Fault::enospc ? ENOSPC : EINTR;
    return true;
  }
  size_t shortened(size_t count) { return std::exchange(shorten_, false) ? std::max<size_t>(1, count / 2) : count; }

  int64_t fail_at_, calls_ = 0;
  Fault fault_;
  unsigned lost_;
  int errno_of_failure_ = 0;
  bool shorten_ = false;
  std::map<int, std::string> paths_;
  Unsynced unsynced_;
};

// Tensors that are written through the system's cache, and one large enough for direct I/O.
OwnedState mixed_state(int64_t step) {
  OwnedState owned = small_state(step);
  owned.add("embedding", Dtype::f32, {301, 257});
  owned.fill(static_cast<uint64_t>(step) + 1);
  return owned;
}

// Each scenario saves on top of these, so that the commit also deletes an old step.
void prepare(const std::string& run) {
  FaultyDisk disk(0, Fault::none);
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, disk.io());
  for (const int64_t step : {1, 2}) checkpoints.save(step, mixed_state(step).state);
}

// Opens the run as a new process would, restores, and requires a whole state. Then saves once more
// and requires that this is found.
int64_t recovered_step(const std::string& run) {
  FaultyDisk disk(0, Fault::none);
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, disk.io());
  OwnedState owned = mixed_state(0);
  const std::optional<int64_t> step = checkpoints.restore(owned.state);
  REQUIRE(step.has_value());
  REQUIRE(owned.bytes() == mixed_state(*step).bytes());
  REQUIRE(checkpoints.take_warnings().empty());  // every directory with a step's name is whole: none was skipped
  for (const CheckpointInfo& info : list_checkpoints(run)) REQUIRE(info.problem.empty());
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    REQUIRE(entry.path().filename().string().size() == 13);  // step-NNNNNNNN: no temporaries
  checkpoints.save(4, mixed_state(4).state);
  REQUIRE(checkpoints.restore(owned.state) == 4);
  return *step;
}

void copy_run(const std::string& from, const std::string& to) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

int64_t calls_of_a_save(const std::string& run) {
  FaultyDisk disk(0, Fault::none);
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, disk.io());
  const int64_t before = disk.calls();
  checkpoints.save(3, mixed_state(3).state);
  return disk.calls() - before;
}

// In a child: opens `run` and saves step 3 with a fault at the n-th call of the save. Returns the child's exit code.
int save_in_child(const std::string& run, int64_t n, Fault fault, unsigned lost, int64_t keep = 2) {
  const pid_t child = fork();
  if (child == 0) {
    int64_t opening;
    {
      FaultyDisk disk(0, Fault::none);
      Checkpoints checkpoints(keeping(keep), run, Resume::automatic, disk.io());
      opening = disk.calls();
    }
    FaultyDisk disk(opening + n, fault, lost);
    Checkpoints checkpoints(keeping(keep), run, Resume::automatic, disk.io());
    checkpoints.save(3, mixed_state(3).state);
    disk.lose_unsynced();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("death at any call of a save, with any of what was not synced lost: the newest committed checkpoint loads") {
  const Scratch scratch(quick_directory());
  prepare(scratch / "origin");
  copy_run(scratch / "origin", scratch / "count");
  const int64_t calls = calls_of_a_save(scratch / "count");
  REQUIRE(calls > 30);
  int64_t states = 0;
  std::map<int64_t, int64_t> recovered;
  for (int64_t n = 1; n <= calls; ++n)
    for (const unsigned lost : {0u, 1u, 2u, 7u}) {
      if (kSanitized && lost != (n % 2 == 0 ? 0u : 7u)) continue;
      INFO("died at call " << n << " of " << calls << ", lost " << lost);
      copy_run(scratch / "origin", scratch / "run");
      REQUIRE(save_in_child(scratch / "run", n, Fault::die, lost) == 9);
      ++recovered[recovered_step(scratch / "run")];
      ++states;
    }
  for (const int64_t keep : {2, 3}) {  // whether or not it deletes an old one
    copy_run(scratch / "origin", scratch / "run");
    REQUIRE(save_in_child(scratch / "run", 0, Fault::none, 0, keep) == 0);
    CHECK(recovered_step(scratch / "run") == 3);  // save() has returned, so it is on disk
  }
  CHECK(recovered.size() == 2);
  CHECK(recovered[2] > 0);  // died before the commit
  CHECK(recovered[3] > 0);  // and after
  WARN(calls << " calls of a save, " << states << " states after death: step 2 newest in " << recovered[2] << ", step 3 in "
             << recovered[3]);
}

TEST_CASE("death in the middle of any write leaves the newest committed checkpoint loadable") {
  const Scratch scratch(quick_directory());
  prepare(scratch / "origin");
  copy_run(scratch / "origin", scratch / "count");
  const int64_t calls = calls_of_a_save(scratch / "count");
  for (int64_t n = 1; n <= calls; ++n) {
    INFO("died half way through call " << n << " of " << calls);
    copy_run(scratch / "origin", scratch / "run");
    REQUIRE(save_in_child(scratch / "run", n, Fault::die_after_half, 0) == 9);
    recovered_step(scratch / "run");
  }
}

TEST_CASE("an error at any call of a save: it throws or succeeds, leaves nothing behind, and the next save works") {
  const Scratch scratch(quick_directory());
  prepare(scratch / "origin");
  copy_run(scratch / "origin", scratch / "count");
  const int64_t calls = calls_of_a_save(scratch / "count");
  for (const Fault fault : {Fault::eio, Fault::enospc, Fault::eintr, Fault::shorten}) {
    int64_t thrown = 0, warned = 0;
    for (int64_t n = 1; n <= calls; ++n) {
      INFO("fault " << static_cast<int>(fault) << " at call " << n << " of " << calls);
      copy_run(scratch / "origin", scratch / "run");
      int64_t opening;
      {
        FaultyDisk disk(0, Fault::none);
        Checkpoints checkpoints(keeping(2), scratch / "run", Resume::automatic, disk.io());
        opening = disk.calls();
      }
      FaultyDisk disk(opening + n, fault);
      Checkpoints checkpoints(keeping(2), scratch / "run", Resume::automatic, disk.io());
      bool saved = true;
      try {
        checkpoints.save(3, mixed_state(3).state);
      } catch (const CheckpointError& error) {
        CHECK(std::string(error.what()).find('\n') == std::string::npos);
        saved = false;
        ++thrown;
      }
      const bool told = !checkpoints.take_warnings().empty();
      warned += told;
      const std::vector<CheckpointInfo> left = list_checkpoints(scratch / "run");
      for (const CheckpointInfo& info : left) REQUIRE_NOTHROW(verify_checkpoint(info.directory));
      REQUIRE(left.size() >= 2);
      if (saved) REQUIRE(left.back().step == 3);
      if (!told)
        for (const auto& entry : std::filesystem::directory_iterator(scratch / "run/checkpoints"))
          REQUIRE(entry.path().filename().string().size() == 13);
      disk.heal();
      CHECK(checkpoints.save(4, mixed_state(4).state).bytes > 0);
      OwnedState owned = mixed_state(0);
      REQUIRE(checkpoints.restore(owned.state) == 4);
      REQUIRE(owned.bytes() == mixed_state(4).bytes());
    }
    if (fault == Fault::eintr || fault == Fault::shorten) CHECK(thrown + warned <= (fault == Fault::eintr ? 1 : 0));  // create_hdf5
    if (fault == Fault::eio || fault == Fault::enospc) CHECK(thrown + warned > calls / 2);
    WARN("fault " << static_cast<int>(fault) << ": " << calls << " states, " << thrown << " saves failed, " << warned << " warned");
  }
}

TEST_CASE("a disk that stays full: saves fail one after the other, the old checkpoints stay, and saving works again with space") {
  const Scratch scratch(quick_directory());
  prepare(scratch / "run");
  bool full = true;
  Io io;
  io.pwrite = [&, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) -> ssize_t {
    if (!full) return real(fd, bytes, count, offset);
    errno = ENOSPC;
    return -1;
  };
  Checkpoints checkpoints(keeping(2), scratch / "run", Resume::automatic, io);
  for (const int64_t step : {3, 4, 5}) {
    CHECK_THROWS_WITH(checkpoints.save(step, mixed_state(step).state), ContainsSubstring("No space left on device"));
    const std::vector<CheckpointInfo> left = list_checkpoints(scratch / "run");
    REQUIRE(left.size() == 2);
    for (const CheckpointInfo& info : left) CHECK_NOTHROW(verify_checkpoint(info.directory));
    CHECK(std::distance(std::filesystem::directory_iterator(scratch / "run/checkpoints"), {}) == 2);
  }
  full = false;
  CHECK(checkpoints.save(6, mixed_state(6).state).bytes > 0);
  OwnedState owned = mixed_state(0);
  CHECK(checkpoints.restore(owned.state) == 6);
}

TEST_CASE("bytes that the disk changed while writing are noticed before anything is committed or deleted") {
  const Scratch scratch(quick_directory());
  prepare(scratch / "run");
  Io io;
  int64_t writes = 0;
  io.pwrite = [&, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) -> ssize_t {
    if (++writes != 2) return real(fd, bytes, count, offset);
    std::vector<char> changed(static_cast<const char*>(bytes), static_cast<const char*>(bytes) + count);
    changed[count / 2] = static_cast<char>(changed[count / 2] ^ 4);
    return real(fd, changed.data(), count, offset);
  };
  Checkpoints checkpoints(keeping(2), scratch / "run", Resume::automatic, io);
  CHECK_THROWS_WITH(checkpoints.save(3, mixed_state(3).state), ContainsSubstring("does not match its digest"));
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(scratch / "run")) steps.push_back(info.step);
  CHECK(steps == std::vector<int64_t>{1, 2});
}

TEST_CASE("a process that loses its lock during a save neither commits nor deletes") {
  const Scratch scratch(quick_directory());
  const std::string run = scratch / "run";
  prepare(run);
  const auto steps_left = [&] {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : list_checkpoints(run)) steps.push_back(info.step);
    return steps;
  };
  const auto lose_lock = [&] { std::filesystem::remove(run + "/lock"); };
  {
    Checkpoints zombie(keeping(2), run);
    lose_lock();
    CHECK_THROWS_WITH(zombie.save(3, mixed_state(3).state), ContainsSubstring("no longer ours"));
  }
  {
    Io io;
    io.mkdir = [&, real = io.mkdir](const char* path, mode_t mode) { return lose_lock(), real(path, mode); };
    Checkpoints zombie(keeping(2), run, Resume::automatic, io);
    CHECK_THROWS_WITH(zombie.save(3, mixed_state(3).state), ContainsSubstring("no longer ours"));
  }
  CHECK(steps_left() == std::vector<int64_t>{1, 2});
  Io io;
  io.rename = [&, real = io.rename](const char* from, const char* to) {
    if (std::string(to).ends_with("step-00000003")) lose_lock();
    return real(from, to);
  };
  Checkpoints zombie(keeping(2), run, Resume::automatic, io);
  // Who has the lock by now may have swept the staged files during the rename: the step is not promised, and nothing is deleted.
  CHECK_THROWS_WITH(zombie.save(3, mixed_state(3).state), ContainsSubstring("lock was lost while step 3 was committed"));
  CHECK(steps_left() == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE(
    "kill -9 at any moment of a run that saves all the time: the newest checkpoint loads, and is no older than what was told") {
  const Scratch scratch(quick_directory());
  const std::string run = scratch / "run";
  int64_t newest = 0;
  for (int round = 0; round < 20; ++round) {
    int told[2];
    REQUIRE(pipe(told) == 0);
    const pid_t child = fork();
    if (child == 0) {
      Checkpoints checkpoints(keeping(2), run);
      OwnedState owned = mixed_state(0);
      for (int64_t step = checkpoints.restore(owned.state).value_or(0) + 1;; ++step) {
        checkpoints.save(step, mixed_state(step).state);
        if (write(told[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(told[1]);
    int64_t last = newest;
    REQUIRE(read(told[0], &last, sizeof last) == sizeof last);  // it has begun
    std::this_thread::sleep_for(std::chrono::microseconds(round * 977 % 5000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (int64_t step; read(told[0], &step, sizeof step) == sizeof step;) last = step;
    close(told[0]);

    Checkpoints checkpoints(keeping(2), run);
    OwnedState owned = mixed_state(0);
    const std::optional<int64_t> step = checkpoints.restore(owned.state);
    REQUIRE(step.has_value());
    CHECK(*step >= last);
    CHECK(*step > newest);
    CHECK(owned.bytes() == mixed_state(*step).bytes());
    CHECK(checkpoints.take_warnings().empty());
    newest = *step;
  }
  WARN("20 kills over " << newest << " saves");
}
