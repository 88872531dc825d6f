// The world of one rank: plain starts never touch MPI, launchers are recognised, several ranks are refused.
#include "parallel/world.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "parallel/mesh.h"
#include "test/catch.h"

using namespace trireme;

namespace {

// The launchers' variables with these values, and no others, until the end of the test.
class Launcher {
 public:
  explicit Launcher(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"}) {
      before_[name] = environment(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Launcher() {
    for (const auto& [name, value] : before_) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

// What a command prints, and how it ends.
std::pair<std::string, int> output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  return {out, pclose(pipe)};
}

std::string mpirun(int ranks, const std::string& test) {
  return "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "OMPI_MCA_rmaps_base_oversubscribe=1 "
         "OMPI_MCA_hwloc_base_binding_policy=none "
         "mpirun --oversubscribe -n " +
         std::to_string(ranks) + " " + std::filesystem::read_symlink("/proc/self/exe").string() + " '" + test + "'";
}

}  // namespace

TEST_CASE("a plain start is one rank without MPI") {
  const Launcher none({});
  CHECK_FALSE(launched_ranks().has_value());
  const World world;
  CHECK_FALSE(world.launched());
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  CHECK(world.local_rank() == 0);
  CHECK(world.local_size() == 1);
}

TEST_CASE("launchers are recognised by what they leave in the environment") {
  const auto ranks = [](const std::map<std::string, std::string>& variables) {
    const Launcher launcher(variables);
    return launched_ranks();
  };
  CHECK(ranks({{"OMPI_COMM_WORLD_SIZE", "8"}}) == 8);
  CHECK(ranks({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}) == 4);
  CHECK(ranks({{"PMI_RANK", "0"}}) == 0);
  CHECK(ranks({{"PMIX_RANK", "3"}}) == 0);
  CHECK(ranks({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "16"}}) == 16);
  CHECK(ranks({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}) == 1);
  CHECK(ranks({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}) == std::nullopt);  // srun of one task, no PMI
  CHECK(ranks({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}) == std::nullopt);         // a batch script, not under srun
}

TEST_CASE("a launcher's variable that is no number is refused before MPI starts") {
  for (const std::string bad : {"x", "-1", "0", "8 ", "1e3"}) {
    const Launcher launcher({{"OMPI_COMM_WORLD_SIZE", bad}});
    CHECK_THROWS_AS(World(), ConfigError);
  }
}

TEST_CASE("started by a launcher as one rank, the world has MPI", "[.launched]") {
  const World world;
  REQUIRE(world.launched());
  CHECK(world.size() == 1);
  CHECK(world.local_size() == 1);
  CHECK(Mesh(world, ParallelConfig{}).replicas() == 1);
}

TEST_CASE("started by a launcher as several ranks, the world refuses", "[.launched]") {
  CHECK_THROWS_WITH(World(), "started with 2 ranks: this version runs one rank");
}

TEST_CASE("mpirun with one rank works, and with two the refusal says why") {
  const auto one = output_of(mpirun(1, "started by a launcher as one rank*"));
  INFO(one.first);
  CHECK(one.second == 0);
  CHECK_THAT(one.first, ContainsSubstring("All tests passed"));
  const auto two = output_of(mpirun(2, "started by a launcher as several ranks*"));
  INFO(two.first);
  CHECK(two.second == 0);
  CHECK_THAT(two.first, ContainsSubstring("All tests passed"));
}

TEST_CASE("the mesh of one rank has one replica, and wishes beyond it are refused") {
  const Launcher none({});
  const World world;
  const Mesh mesh(world, ParallelConfig{});
  CHECK(mesh.rank() == 0);
  CHECK(mesh.replica() == 0);
  CHECK(mesh.replicas() == 1);
  CHECK(mesh.dp() * mesh.pp() * mesh.cp() * mesh.tp() == 1);
  ParallelConfig two;
  two.tp = 2;
  CHECK_THROWS_WITH(Mesh(world, two), "parallel: dp 0 x pp 1 x cp 1 x tp 2 does not make the 1 rank of this start");
}

TEST_CASE("the environment and the host have names") {
  CHECK(environment("TRIREME_THERE_IS_NO_SUCH_VARIABLE") == "");
  CHECK_FALSE(environment("PATH").empty());
  CHECK_FALSE(host_name().empty());
}
