// NUMA nodes and huge pages, from files as Linux writes them.
#include "kernels/machine_memory.h"

#include <filesystem>

#include "test/base/first_core.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

TEST_CASE("NUMA nodes are listed with the cores that this thread may use, and left out without any") {
  const Scratch scratch;
  const auto write = [&](const std::string& name, const std::string& words) {
    std::filesystem::create_directories(std::filesystem::path(scratch / name).parent_path());
    write_text(scratch / name, words);
  };
  const int mine = first_core();
  CHECK(cores_by_node(scratch.path()).empty());
  write("online", "0,2-3\n");
  write("node0/cpulist", std::to_string(CoreSet::kMost - 1) + "\n");  // of another machine
  write("node2/cpulist", std::to_string(mine) + "," + std::to_string(CoreSet::kMost - 1) + "\n");
  write("node3/cpulist", "\n");  // memory alone
  CHECK(cores_by_node(scratch.path()) == std::vector<std::vector<int>>{{mine}});
  write("node0/cpulist", std::to_string(mine) + "\n");
  CHECK(cores_by_node(scratch.path()) == std::vector<std::vector<int>>{{mine}, {mine}});
}

TEST_CASE("huge pages are as the system has chosen") {
  const Scratch scratch;
  const std::string file = scratch / "enabled";
  CHECK(huge_pages(file).empty());
  for (const auto& [words, chosen] : {std::pair("always [madvise] never\n", "madvise"),
                                      {"[always] madvise never\n", "always"},
                                      {"always madvise [never]\n", "never"},
                                      {"never\n", ""},
                                      {"]x[\n", ""}}) {
    write_text(file, words);
    CHECK(huge_pages(file) == chosen);
  }
}
