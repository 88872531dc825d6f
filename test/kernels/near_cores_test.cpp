// Cores near a GPU, from lists as Linux writes them.
#include "kernels/near_cores.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include "test/base/first_core.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

TEST_CASE("lists of cores are read, and nothing else") {
  using Cores = std::vector<int>;
  CHECK(cores_in("0-2,8") == Cores{0, 1, 2, 8});
  CHECK(cores_in("5") == Cores{5});
  CHECK(cores_in("3-3,1-1") == Cores{3, 1});
  CHECK(cores_in("1023-1025") == Cores{1023, 1024, 1025});
  for (const char* other : {"", "-", "1-", "-1", "a", "1;2", "1-2-3", "0-99999999999", "4294967296", "1,x"}) {
    INFO(other);
    CHECK(cores_in(other).empty());
  }
}

TEST_CASE("the cores near a GPU are those that the system lists for its place on the bus") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "0000:1b:00.0");
  std::ofstream(scratch / "0000:1b:00.0/local_cpulist") << "24-25\n";
  CHECK(cores_near("0000:1B:00.0", scratch.path()) == std::vector<int>{24, 25});
  CHECK(cores_near("0000:1c:00.0", scratch.path()).empty());
  CHECK(cores_near("", scratch.path()).empty());
  CHECK(cores_near("../0000:1b:00.0", scratch.path()).empty());
}

TEST_CASE("a rank keeps to the cores near its GPU, unless its launcher has bound it elsewhere") {
  std::thread([] {  // whose cores are its own
    const int all = CoreSet::of_this_thread().count(), first = first_core();
    CHECK(keep_to_cores({}) == all);
    CHECK(keep_to_cores({CoreSet::kMost - 1}) == all);
    CHECK(keep_to_cores({first, CoreSet::kMost - 1}) == 1);
    const CoreSet after = CoreSet::of_this_thread();
    CHECK(after.count() == 1);
    CHECK(after.has(first));
  })
      .join();
}
