// Leftovers of killed MPI jobs in shared memory.
#include "train/health/dead_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {

TEST_CASE("segments of dead jobs are removed, and those that a process has mapped or open, links and other files stay") {
  std::string name = "/dev/shm/trireme-test-XXXXXX";
  REQUIRE(mkdtemp(name.data()) != nullptr);
  const std::string dead = name + "/vader_segment.n1.0.1.0", newer = name + "/sm_segment.n1.0.1.1",
                    link = name + "/vader_segment.link";
  const std::string other = name + "/other", mapped = name + "/vader_segment.n1.0.2.0", open_one = name + "/vader_segment.n1.0.2.1";
  for (const std::string& path : {dead, newer, other, mapped, open_one}) write_text(path, std::string(8192, 'x'));
  std::filesystem::create_symlink(other, link);
  int file = open(mapped.c_str(), O_RDWR);
  void* const memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(memory != MAP_FAILED);
  close(file);
  file = open(open_one.c_str(), O_RDWR);
  const SweptSegments swept = sweep_dead_segments(name);
  if (swept.files == 0) WARN("skipped: this kernel grants no leases here");
  for (const std::string& path : {other, mapped, open_one, link}) CHECK(std::filesystem::exists(path));
  if (swept.files > 0) {
    CHECK(swept.files == 2);
    CHECK(swept.bytes == 2 * 8192);
    CHECK_FALSE(std::filesystem::exists(dead));
    CHECK_FALSE(std::filesystem::exists(newer));
    close(file), munmap(memory, 8192);
    CHECK(sweep_dead_segments(name).files == 2);
  }
  std::filesystem::remove_all(name);
}

TEST_CASE("a start removes what a killed job has left in shared memory, but nothing of a running one", "[unsanitized]") {
  const Workplace place;
  const auto segments = [] {
    int64_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      count += entry.path().filename().string().starts_with("vader_segment.");
    return count;
  };
  Process lives(place.scratch.path(), Workplace::arguments({"train.steps=100000", "train.name=lives", "train.microbatch=1"}), 2);
  while (lives.running() && place.lines("lives") < 5) usleep(1000);
  sweep_dead_segments();
  const int64_t before = segments();
  {
    Process killed(place.scratch.path(), Workplace::arguments({"train.steps=100000", "train.name=killed", "train.microbatch=1"}),
                   2);
    while (killed.running() && place.lines("killed") < 5) usleep(1000);
    killed.signal(SIGKILL);
    killed.wait();
  }
  usleep(500000);
  if (segments() <= before) WARN("skipped: Open MPI has left nothing here");
  succeed(place.train({"train.name=next"}));
  CHECK(lives.running());
  const int64_t lines = place.lines("lives");
  while (lives.running() && place.lines("lives") < lines + 5) usleep(1000);
  CHECK(lives.running());
  lives.signal(SIGUSR1);
  CHECK(lives.wait().code == 75);
}

}  // namespace trireme
