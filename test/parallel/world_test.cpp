// The world and the mesh: plain starts never touch MPI, launchers are recognised, every rank finds its place.
#include "parallel/world.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <thread>

#include "parallel/mesh.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/parallel/launch.h"

using namespace trireme;
using test::mpirun;
using test::output_of;

namespace {

// Sets the launchers' variables to these values, and removes all others, until the end of the test.
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

}  // namespace

extern "C" int PMPI_Finalize();

// Leaves a trace of ranks that enter it, then calls MPI's own.
extern "C" int MPI_Finalize() {
  if (const std::string trace = environment("FINALIZE_TRACE"); !trace.empty()) (void)mkdir(trace.c_str(), 0777);
  return PMPI_Finalize();
}

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

TEST_CASE("a launcher's variable that is not a number is refused before MPI starts") {
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

TEST_CASE("started by a launcher as six ranks, each finds its place", "[.launched]") {
  const World world;
  REQUIRE(world.size() == 6);
  CHECK(world.local_size() == 6);
  CHECK(world.local_rank() == world.rank());
  ParallelConfig config;
  config.tp = 2, config.pp = 3;
  const Mesh mesh(world, config);
  CHECK(mesh.tp().size() == 2);
  CHECK(mesh.pp().size() == 3);
  CHECK(mesh.dp().size() == 1);
  CHECK(mesh.all().size() == 6);
  CHECK(mesh.describe() == std::string(text("rank ", world.rank(), " | dp 0 pp ", world.rank() / 2, " tp ", world.rank() % 2)));
}

TEST_CASE("started by a launcher as three ranks, none ends MPI while another still works", "[.launched]") {
  const World world;
  if (world.rank() != 1) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK_FALSE(std::filesystem::exists(environment("FINALIZE_TRACE")));
}

TEST_CASE("a rank that is done waits outside MPI_Finalize, where another's death does no harm") {
  const Scratch scratch;
  const std::string trace = scratch / "trace";
  setenv("FINALIZE_TRACE", trace.c_str(), 1);
  const auto [output, code] = output_of(mpirun(3, "started by a launcher as three ranks*"));
  unsetenv("FINALIZE_TRACE");
  INFO(output);
  CHECK(code == 0);
  CHECK(std::filesystem::exists(trace));
}

TEST_CASE("started by a launcher as two ranks, one does not start MPI", "[.launched]") {
  if (environment("OMPI_COMM_WORLD_RANK") == "1") std::this_thread::sleep_for(std::chrono::minutes(5));
  const World world({.say = [](const std::string& line) { std::cerr << line << '\n'; }, .warn = 0.3, .end = 3.2});
}

TEST_CASE("started by a launcher as two ranks, one stays before the end of the start", "[.launched]") {
  World world({.say = [](const std::string& line) { std::cerr << line << '\n'; }, .warn = 0.3, .end = 3.2, .until_watched = true});
  if (world.rank() == 1) world.watched();
  std::this_thread::sleep_for(std::chrono::minutes(5));
}

TEST_CASE("a start that another rank does not get through ends with a line") {
  for (const std::string where : {"one does not start MPI", "one stays before the end of the start"}) {
    const auto [output, code] = output_of(mpirun(2, "*" + where));
    INFO(output);
    CHECK(WEXITSTATUS(code) == 71);
    const std::string begin = "rank 0 on " + host_name() + " (process ";
    CHECK_THAT(output, ContainsSubstring(begin) &&
                           ContainsSubstring(" has waited 0 s for the start of all ranks. They must all have begun") &&
                           ContainsSubstring(" has waited 3 s for the start of all ranks: it ends. "));
    // A busy machine may have rank 1 wait for rank 0, too, but not to the end.
    CHECK_FALSE(std::regex_search(output, std::regex("rank 1 on .*: it ends")));
  }
}

TEST_CASE("mpirun with one rank and with six works") {
  const auto one = output_of(mpirun(1, "started by a launcher as one rank*"));
  INFO(one.first);
  CHECK(one.second == 0);
  CHECK_THAT(one.first, ContainsSubstring("All tests passed"));
  const auto six = output_of(mpirun(6, "started by a launcher as six ranks*"));
  INFO(six.first);
  CHECK(six.second == 0);
  CHECK_THAT(six.first, ContainsSubstring("All tests passed"));
}

TEST_CASE("the mesh of one rank has one replica, and wishes beyond it are refused") {
  const Launcher none({});
  const World world;
  const Mesh mesh(world, ParallelConfig{});
  CHECK(mesh.first());
  CHECK(mesh.replica() == 0);
  CHECK(mesh.replicas() == 1);
  for (const Comm* comm : {&mesh.dp(), &mesh.pp(), &mesh.tp(), &mesh.all()}) CHECK(comm->size() == 1);
  ParallelConfig two;
  two.tp = 2;
  CHECK_THROWS_WITH(
      Mesh(world, two),
      "parallel.pp 1 x parallel.cp 1 x parallel.tp 2 = 2 ranks for each replica, but this start has 1 rank: start a multiple of 2 "
      "ranks, or lower these sizes");
}

TEST_CASE("an imagined mesh gives each rank its place, tp fastest") {
  ParallelConfig config;
  config.tp = 8, config.pp = 16;
  const Mesh mesh(16383, 16384, config);
  CHECK(mesh.dp().size() == 128);
  CHECK(mesh.describe() == "rank 16383 | dp 127 pp 15 tp 7");
  CHECK(Mesh(8 * 5 + 3, 16384, config).describe() == "rank 43 | dp 0 pp 5 tp 3");
  CHECK_THROWS_AS(Mesh(0, 100, config), ConfigError);
}

TEST_CASE("the environment and the host have names") {
  CHECK(environment("TRIREME_THERE_IS_NO_SUCH_VARIABLE") == "");
  CHECK_FALSE(environment("PATH").empty());
  CHECK_FALSE(host_name().empty());
}
