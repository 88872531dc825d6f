#include "parallel/world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/core_set.h"
#include "kernels/cuda_machine.h"
#include "parallel/mpi_comm.h"

namespace trireme {
namespace {

// Nanoseconds that the kernel may add to a thread's sleep. Its usual 50 us would double those of waits for messages.
constexpr unsigned long kTimerSlack = 1000;

int64_t number_in(const char* variable, const std::string& value) {
  int64_t number = 0;
  const auto [stop, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc() || stop != value.data() + value.size() || number < 1)
    throw ConfigError(text(variable, " = ", value, ": must be a number of ranks; start without it, or under mpirun or srun"));
  return number;
}

// Ranks of the node whose sets of cores overlap with this one's.
int sharers(MPI_Comm node, int size) {
  const CoreSet mine = CoreSet::of_this_thread();
  std::vector<CoreSet> all(static_cast<size_t>(size));
  ok(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, node));
  const auto shares = [&](const CoreSet& theirs) { return mine.common(theirs).count() > 0; };
  return std::max(1, static_cast<int>(std::ranges::count_if(all, shares)));
}

// Open MPI ends a rank that has lost its launcher's connection, unless this parameter of its own is negative.
void survive_lost_connection(bool wanted) {
  static int* const delay = static_cast<int*>(dlsym(RTLD_DEFAULT, "opal_abort_delay"));
  static const int usual = delay != nullptr ? *delay : 0;
  if (delay != nullptr) *delay = wanted ? -1 : usual;
}

// The rank's number, from the launcher's environment.
std::string announced_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (std::string value = environment(variable); !value.empty()) return value;
  return "?";
}

// The rank's number on its node, likewise.
std::optional<int> announced_local_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const std::string value = environment(variable);
    int number = 0;
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc() && number >= 0) return number;
  }
  return std::nullopt;
}

// An MPI that was built for CUDA may open the current GPU when it starts: if none is chosen, the first, on each rank.
void choose_gpu_before_mpi() {
  auto* const built_for_cuda = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  if (built_for_cuda == nullptr || built_for_cuda() == 0) return;
  try {
    if (const auto number = announced_local_rank()) use_gpu(*number);
  } catch (const Error&) {  // a run without GPUs does not mind; another one chooses again, and reports it
  }
}

// Warns once, and ends the process at last, while the start lasts.
class StartWatch {
 public:
  explicit StartWatch(StartPatience patience) : patience_(std::move(patience)) {}
  void look() {
    const double waited = seconds_since(begin_);
    if (waited >= patience_.end) {
      say(waited, ": it ends");
      end_at_once(ExitCode::hang);
    }
    if (waited >= patience_.warn && !std::exchange(warned_, true)) say(waited, "");
  }

 private:
  void say(double waited, const char* consequence) const {
    if (patience_.say)
      patience_.say(text("rank ", announced_rank(), " on ", host_name(), " (process ", getpid(), ") has waited ",
                         std::llround(waited), " s for the start of all ranks", consequence,
                         ". They must all have begun, and reach each other: look for ",
                         "one that is stopped or has not begun, and for nodes without a connection"));
  }
  StartPatience patience_;
  Clock::time_point begin_ = Clock::now();
  bool warned_ = false;
};

// Polls instead of using the kernel's parent-death signal: that fires when the thread that started
// us ends, which in some launchers is not the last.
void watch_launcher(const std::stop_token& stop, pid_t parent, OrphanRule& orphans, const std::atomic<bool>& started,
                    StartWatch start) {
  name_watcher_thread();
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    const bool may_continue = orphans.may_continue();
    survive_lost_connection(may_continue);
    if (getppid() != parent && !may_continue) end_at_once(ExitCode::hang);
    if (!started) start.look();
    never.wait_for(lock, stop, std::chrono::milliseconds(100), [] { return false; });
  }
}

// Waits until all ranks are about to end. If one dies while another is inside MPI_Finalize, Open MPI's
// mpirun may crash or stay for ever (seen with 4.1.4 and PMIx 4.2.2).
void wait_for_all_to_end() {
  std::vector<MPI_Request> others(1, MPI_REQUEST_NULL);
  if (MPI_Ibarrier(MPI_COMM_WORLD, others.data()) != MPI_SUCCESS) return;
  try {
    wait_all(others);
  } catch (const Error&) {  // a destructor reports nothing: MPI_Finalize fails in the same way
  }
}

}  // namespace

void set_environment_default(const std::string& name, const std::string& value) { setenv(name.c_str(), value.c_str(), 0); }

std::vector<std::string> environment_outside_launcher() {
  constexpr std::array kOfLauncher{"OMPI_",     "PMIX_",      "PRTE_",        "PMI_",         "HYDI_",
                                   "MPI_LOCAL", "SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID"};
  const bool launched = launched_ranks().has_value();
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const bool allows_root = variable.starts_with("OMPI_ALLOW_RUN_AS_ROOT");  // the user's own
    if (!launched || allows_root || std::ranges::none_of(kOfLauncher, [&](const char* name) { return variable.starts_with(name); }))
      variables.emplace_back(variable);
  }
  return variables;
}

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::optional<int64_t> launched_ranks() {
  // Set by mpirun: the first by Open MPI, the second by MPICH and Intel MPI.
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const std::string value = environment(variable); !value.empty()) return number_in(variable, value);
  // A step of srun. SLURM_NTASKS would also be set in a batch script outside of any srun. A step of
  // one task without PMIx counts as a plain start.
  if (const std::string tasks = environment("SLURM_STEP_NUM_TASKS"); !tasks.empty() && !environment("SLURM_PROCID").empty()) {
    const int64_t ranks = number_in("SLURM_STEP_NUM_TASKS", tasks);
    if (ranks > 1 || !environment("PMIX_RANK").empty()) return ranks;
  }
  if (!environment("PMIX_RANK").empty() || !environment("PMI_RANK").empty()) return 0;
  return std::nullopt;
}

World::Session::Session(bool wanted, const StartPatience& patience) : up(wanted) {
  if (!up) return;
  prctl(PR_SET_TIMERSLACK, kTimerSlack);  // of this thread and those that it starts
  watch = std::jthread(watch_launcher, getppid(), std::ref(orphans), std::cref(started), StartWatch(patience));
  // CUDA reads these when it starts, possibly inside MPI. A stream that waits for another rank must
  // not block others: neither by lazy loading of a kernel's code nor by sharing one of the GPU's
  // queues.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // NCCL would connect an algorithm when it is first used, in the middle of a step.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  // Open MPI's own waits, at the start and the end, give the core to whoever can use it.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Its library of the machine's topology would look for GPUs by the X server of DISPLAY, and wait for that.
  setenv("HWLOC_COMPONENTS", "-gl", 0);
  choose_gpu_before_mpi();
  int provided = 0;
  ok(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  ok(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));  // also inherited by communicators made from it
  if (provided < MPI_THREAD_MULTIPLE) throw ConfigError("this MPI was built without MPI_THREAD_MULTIPLE; use another MPI");
}

World::Session::~Session() {
  if (!up || !whole) return;
  wait_for_all_to_end();
  MPI_Finalize();
}

World::World(const StartPatience& patience) : session_(launched_ranks().has_value(), patience) {
  if (!session_.up) return;
  ok(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  ok(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  MPI_Comm node = MPI_COMM_NULL;
  ok(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  ok(MPI_Comm_rank(node, &local_rank_));
  ok(MPI_Comm_size(node, &local_size_));
  core_sharers_ = sharers(node, local_size_);
  ok(MPI_Comm_free(&node));
  const int64_t promised = *launched_ranks();
  if (promised > 0 && promised != size_)
    throw ConfigError(text("the launcher started ", promised, " ranks but MPI sees ", size_,
                           ": start with the mpirun of the MPI that this program was built with, or with srun --mpi=pmix"));
  session_.whole = true;
  session_.started = !patience.until_watched;
}

std::vector<std::string> World::tell_node(const std::string& mine) const {
  if (!session_.up) return {mine};
  constexpr size_t kLength = 128;
  require(mine.size() < kLength, text("a rank sends its node ", mine.size(), " bytes"));
  MPI_Comm node = MPI_COMM_NULL;
  ok(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  std::string padded = mine, all(kLength * static_cast<size_t>(local_size_), '\0');
  padded.resize(kLength);
  ok(MPI_Allgather(padded.data(), kLength, MPI_BYTE, all.data(), kLength, MPI_BYTE, node));
  ok(MPI_Comm_free(&node));
  std::vector<std::string> told;
  for (size_t r = 0; r < static_cast<size_t>(local_size_); ++r) told.emplace_back(all.c_str() + r * kLength);
  return told;
}

void name_watcher_thread() { pthread_setname_np(pthread_self(), kWatcherThread); }

void end_at_once(ExitCode code) { std::_Exit(static_cast<int>(code)); }

void World::abort(ExitCode code) const {
  survive_lost_connection(false);
  if (session_.up) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

}  // namespace trireme
