// Problems that only show in thousands of runs: damage of every kind, disks that refuse at times,
// and days of saves.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/philox.h"
#include "checkpoint/reader.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"

using namespace trireme;

namespace {

// A sequence of random numbers from a seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t n) { return philox64(seed_, next_++) % n; }

 private:
  uint64_t seed_, next_ = 0;
};

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Changes one file of the newest checkpoint: a burst of other bytes, truncated, longer, zeros,
// another step's, deleted. Returns false if the bytes are the same as before.
bool damage(const std::string& run, int64_t newest, int64_t older, Dice& dice) {
  const std::vector<std::string> files = files_in(step_path(run, newest));
  const std::string& victim = files[dice.below(files.size())];
  const std::string before = read_text(victim);
  std::string after = before;
  switch (dice.below(6)) {
    case 0:
      for (size_t i = dice.below(after.size()), n = 1 + dice.below(64); n > 0 && i < after.size(); ++i, --n)
        after[i] = static_cast<char>(dice.below(256));
      break;
    case 1:
      after.resize(dice.below(after.size()));
      break;
    case 2:
      after += std::string(1 + dice.below(100), static_cast<char>(dice.below(256)));
      break;
    case 3:
      std::fill_n(after.begin() + static_cast<std::ptrdiff_t>(dice.below(after.size())), 1, '\0');
      break;
    case 4:
      after = read_text(step_path(run, older) + victim.substr(victim.rfind('/')));
      break;
    default:
      std::filesystem::remove(victim);
      return true;
  }
  write_text(victim, after);
  return after != before;
}

void check_damages(int64_t count) {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "origin", {1, 2});
  Dice dice(3);
  int64_t noticed = 0, harmless = 0;
  double slowest = 0;
  for (int64_t i = 0; i < count; ++i) {
    INFO("damage " << i);
    std::filesystem::remove_all(scratch / "run");
    std::filesystem::copy(scratch / "origin", scratch / "run", std::filesystem::copy_options::recursive);
    const bool changed = damage(scratch / "run", 2, 1, dice);
    bool found = false;
    try {
      verify_checkpoint(step_path(scratch / "run", 2));
    } catch (const CheckpointError&) {
      found = true;
    }
    if (found != changed) FAIL("a damaged file passes for whole, or a whole one for damaged");
    const auto begin = std::chrono::steady_clock::now();
    Checkpoints checkpoints({}, scratch / "run");
    OwnedState owned = small_state(0);
    const int64_t step = checkpoints.restore(owned.state).value_or(-1);
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (owned.bytes() != small_state(step).bytes()) FAIL("a wrong state was restored");
    ++(step == 1 ? noticed : harmless);
  }
  CHECK(slowest < 5);
  WARN(count << " damages: " << noticed << " passed over to the step before, " << harmless
             << " beside the tensors or none; slowest restore " << slowest * 1e3 << " ms");
}

struct Holdings {
  int64_t resident = 0, descriptors = 0, entries = 0;
};

Holdings holdings(const std::string& run) {
  Holdings held;
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> held.resident;
  held.resident *= sysconf(_SC_PAGESIZE);
  held.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  held.entries = std::distance(std::filesystem::recursive_directory_iterator(run), {});
  return held;
}

void check_many_saves(int64_t count) {
  const Scratch scratch(quick_directory());
  const std::string run = scratch / "run";
  Checkpoints checkpoints(keeping(2), run);
  Holdings early;
  for (int64_t step = 1; step <= count; ++step) {
    const OwnedState owned = small_state(step);
    checkpoints.save(step, owned.state);
    if (step == count / 10) early = holdings(run);
  }
  const Holdings late = holdings(run);
  WARN(count << " saves: resident " << early.resident / 1024 << " KiB after a tenth, " << late.resident / 1024
             << " KiB after all; descriptors " << early.descriptors << ", " << late.descriptors << "; files " << early.entries
             << ", " << late.entries);
  CHECK(late.resident <= early.resident + (1 << 20));
  CHECK(late.descriptors == early.descriptors);
  CHECK(late.entries == early.entries);
  CHECK(checkpoints.take_warnings().empty());
}

// A disk that becomes full or read-only at some call, until it is repaired.
void check_refusing_disk(int64_t saves) {
  const Scratch scratch(quick_directory());
  const std::string run = scratch / "run";
  Dice dice(4);
  int64_t until = -1;  // calls that still work; -1: all
  int reason = 0;
  const auto refuses = [&] {
    if (until < 0 || until-- > 0) return false;
    until = 0, errno = reason;
    return true;
  };
  Io io;
  io.pwrite = [&, real = io.pwrite](int fd, const void* bytes, size_t n, off_t at) -> ssize_t {
    return refuses() ? -1 : real(fd, bytes, n, at);
  };
  io.fsync = [&, real = io.fsync](int fd) { return refuses() ? -1 : real(fd); };
  io.rename = [&, real = io.rename](const char* from, const char* to) { return refuses() ? -1 : real(from, to); };
  io.mkdir = [&, real = io.mkdir](const char* path, mode_t mode) { return refuses() ? -1 : real(path, mode); };
  Checkpoints checkpoints(keeping(2), run, Resume::automatic, io);
  int64_t newest = 1, refused = 0;
  checkpoints.save(1, small_state(1).state);
  for (int64_t step = 2; step <= saves; ++step) {
    const OwnedState owned = small_state(step);
    const bool bad = step % 2 == 0;
    until = bad ? static_cast<int64_t>(dice.below(12)) : -1;
    reason = dice.below(2) == 0 ? ENOSPC : EROFS;
    try {
      checkpoints.save(step, owned.state);
      newest = step;
    } catch (const CheckpointError&) {
      REQUIRE(bad);
      ++refused;
    }
    until = -1;
    checkpoints.take_warnings();
    const std::vector<CheckpointInfo> left = list_checkpoints(run);
    REQUIRE_FALSE(left.empty());
    REQUIRE(left.back().step == newest);
    REQUIRE_NOTHROW(verify_checkpoint(left.back().directory));
  }
  CHECK(refused > saves / 4);
  WARN(saves << " saves, " << refused << " of them refused by a disk that was full or read-only");
}

}  // namespace

TEST_CASE("random damage is noticed or harmless, and what is restored is a state that was saved") { check_damages(500); }
TEST_CASE("a hundred thousand random damages", "[.][soak]") { check_damages(100000); }

TEST_CASE("saves in a row take no more memory, descriptors or files", "[unsanitized]") { check_many_saves(500); }
TEST_CASE("ten thousand saves in a row", "[.][soak]") { check_many_saves(10000); }

TEST_CASE("a disk that is full or read-only now and then leaves the newest checkpoint, and the next save works") {
  check_refusing_disk(100);
}
