// Saves in the background while the caller does something else.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/reader.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"

using namespace trireme;

namespace {

// A disk whose writes block until released.
class SlowDisk {
 public:
  Io io() {
    Io io;
    io.pwrite = [this, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) -> ssize_t {
      reached_ = true;
      while (!open_) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (full_) return errno = ENOSPC, -1;
      return real(fd, bytes, count, offset);
    };
    return io;
  }
  void wait_for_write() const {
    while (!reached_) std::this_thread::yield();
  }
  void open(bool full = false) { full_ = full, open_ = true; }
  void close() { open_ = reached_ = false; }

 private:
  std::atomic<bool> open_ = false, reached_ = false, full_ = false;
};

void wait_while_busy(const Checkpoints& checkpoints) {
  while (checkpoints.busy()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a save continues after begin(), in two parts, and is there when it says so") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  SlowDisk disk;
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, disk.io());
  const OwnedState owned = small_state(1);
  CHECK_FALSE(checkpoints.saving());
  CHECK(checkpoints.advance() == std::nullopt);
  checkpoints.begin(1, owned.state);
  disk.wait_for_write();
  CHECK(checkpoints.saving());
  CHECK(checkpoints.busy());
  CHECK(steps_left(run).empty());
  disk.open();
  wait_while_busy(checkpoints);
  CHECK(steps_left(run).empty());  // the part is written, but not committed before all ranks know of it
  CHECK(checkpoints.advance() == std::nullopt);
  wait_while_busy(checkpoints);
  CHECK(steps_left(run) == std::vector<int64_t>{1});
  const std::optional<SaveResult> result = checkpoints.advance();
  REQUIRE(result.has_value());
  CHECK(result->step == 1);
  CHECK(result->digest == state_digest(owned.state));
  CHECK(result->bytes > 0);
  CHECK(result->write_seconds > 0);
  CHECK(result->seconds >= result->write_seconds);
  CHECK_FALSE(checkpoints.saving());
}

TEST_CASE("a save waits for its copy, and until then reads nothing of it") {
  const Scratch scratch;
  Checkpoints checkpoints(keeping(2), scratch / "run");
  OwnedState owned = small_state(1), later = small_state(2);
  std::atomic<bool> ready = false;
  checkpoints.begin(1, owned.state, [&] {
    while (!ready) std::this_thread::yield();
  });
  CHECK(checkpoints.busy());
  owned.fill(3);  // what seed 2 + 1 of small_state(2) gives
  ready = true;
  checkpoints.end();
  OwnedState restored = small_state(0);
  CHECK(checkpoints.restore(restored.state) == 1);
  CHECK(restored.bytes() == later.bytes());
}

TEST_CASE("several threads write and read what one does, and one that fails ends the work of all") {
  const auto state_at = [](int64_t step) {
    OwnedState owned = small_state(step);
    owned.add("embedding", Dtype::f32, {2300, 2048});  // 18 MB: several portions for each thread
    owned.add("odd", Dtype::bf16, {700, 4999});
    owned.fill(static_cast<uint64_t>(step) + 1);
    return owned;
  };
  const OwnedState first = state_at(1), second = state_at(2);
  std::string alone;
  for (const int64_t writers : {1, 4}) {
    INFO(writers << " writers");
    const Scratch scratch;
    CheckpointConfig config = keeping(2);
    config.writers = writers;
    std::atomic<int64_t> writes = 0, refused_from = 1 << 30;
    Io io;
    io.pwrite = [&, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) {
      if (++writes < refused_from) return real(fd, bytes, count, offset);
      errno = ENOSPC;
      return ssize_t{-1};
    };
    Checkpoints checkpoints(config, scratch / "run", Resume::automatic, io);
    const std::string digest = checkpoints.save(1, first.state).digest;
    CHECK(digest == state_digest(first.state));
    if (alone.empty()) alone = digest;
    CHECK(digest == alone);
    OwnedState restored = state_at(0);
    REQUIRE(checkpoints.restore(restored.state) == 1);
    REQUIRE(restored.bytes() == first.bytes());
    writes = 0, refused_from = 2;
    CHECK_THROWS_WITH(checkpoints.save(2, second.state), ContainsSubstring("No space left on device"));
    CHECK(writes <= 1 + 2 * writers);  // each may be in the middle of one, direct or through the cache
    CHECK(steps_left(scratch / "run") == std::vector<int64_t>{1});
    refused_from = 1 << 30;
    CHECK(checkpoints.save(2, second.state).bytes > (24 << 20));
    REQUIRE(checkpoints.restore(restored.state) == 2);
    REQUIRE(restored.bytes() == second.bytes());
  }
}

TEST_CASE("a save that fails in the background is reported by advance(), leaves nothing, and the next one works") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  SlowDisk disk;
  disk.open();
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, disk.io());
  checkpoints.save(1, small_state(1).state);
  disk.close();
  const OwnedState second = small_state(2);
  checkpoints.begin(2, second.state);
  disk.open(true);
  wait_while_busy(checkpoints);
  CHECK(checkpoints.advance() == std::nullopt);
  wait_while_busy(checkpoints);
  CHECK_THROWS_WITH(checkpoints.advance(), ContainsSubstring("No space left on device"));
  CHECK_FALSE(checkpoints.saving());
  CHECK(std::distance(std::filesystem::directory_iterator(run + "/checkpoints"), {}) == 1);
  disk.open();
  CHECK(checkpoints.save(3, small_state(3).state).bytes > 0);
  CHECK(steps_left(run) == std::vector<int64_t>{1, 3});
}

TEST_CASE("a second save does not begin before the first has ended") {
  const Scratch scratch;
  Checkpoints checkpoints(keeping(2), scratch / "run");
  const OwnedState first = small_state(1), second = small_state(2);
  checkpoints.begin(1, first.state);
  CHECK_THROWS_WITH(checkpoints.begin(2, second.state), ContainsSubstring("before the previous one ended"));
  checkpoints.end();
  checkpoints.begin(2, second.state);
  checkpoints.end();
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{1, 2});
}

TEST_CASE("a process that goes while a save is under way leaves the checkpoint before, and nothing else once the next one opens") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  save_steps(run, {1});
  const OwnedState second = small_state(2);
  {
    Checkpoints checkpoints(keeping(2), run);
    checkpoints.begin(2, second.state);
  }
  CHECK(steps_left(run) == std::vector<int64_t>{1});
  Checkpoints next(keeping(2), run);
  CHECK(std::distance(std::filesystem::directory_iterator(run + "/checkpoints"), {}) == 1);
  OwnedState restored = small_state(0);
  CHECK(next.restore(restored.state) == 1);
}

TEST_CASE("every n-th step is kept for ever, beside the newest") {
  const Scratch scratch;
  {
    Checkpoints checkpoints({.every = 1, .keep = 2, .keep_every = 4}, scratch / "run");
    for (int64_t step = 1; step <= 11; ++step) checkpoints.save(step, small_state(step).state);
  }
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{4, 8, 10, 11});
}

TEST_CASE("a state that is confirmed is the one that was restored") {
  const Scratch scratch;
  save_steps(scratch / "run", {1});
  Checkpoints checkpoints(keeping(2), scratch / "run");
  OwnedState owned = small_state(0);
  checkpoints.restore(owned.state);
  CHECK_NOTHROW(checkpoints.confirm(owned.state.slices));
  *static_cast<unsigned char*>(owned.state.slices[1].local.data()) ^= 1;
  CHECK_THROWS_WITH(checkpoints.confirm(owned.state.slices), ContainsSubstring("the restored tensors have digest"));
}

TEST_CASE("what is saved in memory is found where it is newer than what is on disk, outlives the process, and goes with the run") {
  if (!std::filesystem::is_directory("/dev/shm")) {
    WARN("skipped: no /dev/shm");
    return;
  }
  const Scratch scratch;
  const std::string run = scratch / "run";
  const CheckpointConfig config{.every = 10, .keep = 2, .memory_every = 1};
  const auto memory = [&] {
    std::string token;
    std::ifstream(run + "/memory") >> token;
    return "/dev/shm/trireme-" + std::to_string(getuid()) + "/" + token;
  };
  const auto save = [](Checkpoints& checkpoints, int64_t step, Tier tier) {
    const OwnedState owned = small_state(step);
    checkpoints.begin(step, owned.state, {}, tier);
    CHECK(checkpoints.end().tier == tier);
  };
  {
    Checkpoints checkpoints(config, run);
    CHECK(checkpoints.due_in_memory(3));
    save(checkpoints, 1, Tier::disk);
    for (int64_t step = 2; step <= 5; ++step) save(checkpoints, step, Tier::memory);
  }
  CHECK(steps_left(run) == std::vector<int64_t>{1});
  CHECK(steps_left(memory()) == std::vector<int64_t>{4, 5});
  OwnedState owned = small_state(0);
  {
    Checkpoints next(config, run);
    CHECK(next.restore(owned.state) == 5);
    CHECK(owned.bytes() == small_state(5).bytes());
    next.finish();  // it is newer than what is on disk: it stays
  }
  write_text(memory() + "/step-00000005/manifest.json", "");
  {
    Checkpoints next(config, run);
    CHECK(next.restore(owned.state) == 4);
    CHECK(next.take_warnings().size() == 1);
    CHECK_THROWS_AS(Checkpoints(config, run, Resume::never), ConfigError);
    save(next, 6, Tier::disk);
    next.finish();
  }
  CHECK_FALSE(std::filesystem::exists(memory()));
  {
    Checkpoints next(config, run);
    save(next, 7, Tier::memory);
  }
  const std::string left = memory();
  CHECK(std::filesystem::exists(left));
  std::filesystem::remove_all(run);
  { Checkpoints fresh(config, scratch / "other"); }
  CHECK_FALSE(std::filesystem::exists(left));  // its run is gone
}
