#include "train/run/supervise.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/reader.h"
#include "parallel/world.h"
#include "train/config/config.h"
#include "train/health/signals.h"
#include "train/run/launched_training.h"
#include "train/run/mesh_suggestion.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr size_t kLoop = 3;  // equal attempts without a new checkpoint are a crash loop
constexpr double kLongestDelay = 60;
constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kLeftAlone = std::chrono::seconds(10);  // that a launcher may take to end after its ranks

int number_of(ExitCode code) { return static_cast<int>(code); }

// Whether two failures are the same one.
bool alike(const Attempt& a, const Attempt& b) {
  return a.code == b.code && a.cause == b.cause && a.rank == b.rank && a.host == b.host && a.step == b.step;
}

// In either tier.
int64_t newest_checkpoint(const std::string& run) {
  int64_t newest = newest_in_memory(run);
  for (const CheckpointInfo& checkpoint : list_checkpoints(run))
    if (checkpoint.problem.empty()) newest = std::max(newest, checkpoint.step);
  return newest;
}

// Which file of this name stands there now: exit.json is replaced by another one each time.
std::pair<ino_t, std::filesystem::file_time_type> identity_of(const std::string& path) {
  struct stat facts {};
  std::error_code error;
  if (stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_ino, std::filesystem::last_write_time(path, error)};
}

void read_exit(const std::string& path, Attempt& attempt) {
  std::ifstream in(path);
  const Json exit = Json::parse_or_null(in);
  if (!exit.is_object()) return;
  attempt.cause = exit.value("cause", "");
  attempt.message = exit.value("message", "");
  attempt.host = exit.value("host", "");
  attempt.rank = exit.value("rank", int64_t{-1});
  attempt.step = exit.value("step", int64_t{-1});
}

// In a group of its own, so that a terminal's signals reach this process alone, which passes them on; dies with its parent.
pid_t start(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (getppid() == parent) execvp(argv[0], argv.data());
  _exit(127);
}

// mpirun ends its ranks when it is asked to end itself, but passes this on, which they take the same way.
int passed_on(int signal, bool by_mpirun) { return by_mpirun && (signal == SIGTERM || signal == SIGINT) ? SIGUSR1 : signal; }

struct Children {
  bool any = false, alive = false;
};

Children children_of(pid_t process) {
  Children found;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream in("/proc/" + std::to_string(child) + "/stat");
      std::string stat;
      std::getline(in, stat);
      const size_t name_end = stat.rfind(") ");
      found.any = true;
      found.alive |= name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
    }
  }
  return found;
}

// Detects a launcher that stays when all that it has started has gone: Open MPI's may, when a rank dies while it starts.
class LeftAlone {
 public:
  bool now(pid_t launcher) {
    if (!look_.due(Clock::now())) return false;
    const Children children = children_of(launcher);
    if (children.alive || (children.any && !started_)) since_ = Clock::now();
    started_ |= children.any;
    return started_ && Clock::now() - since_ > kLeftAlone;
  }

 private:
  Throttle look_{std::chrono::seconds(1)};
  bool started_ = false;
  Clock::time_point since_{};
};

int exit_code_of(pid_t child, bool by_mpirun) {
  int status = 0, told = 0;
  LeftAlone left_alone;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    require(ended == 0 || errno == EINTR, text("waitpid: ", strerror(errno)));
    if (const int signal = stop_signal(); signal != 0 && signal != std::exchange(told, signal))
      kill(child, passed_on(signal, by_mpirun));
    if (by_mpirun && left_alone.now(child)) {
      complain("supervise: the launcher hangs although its ranks have ended: it is ended too");
      kill(child, SIGKILL);
      by_mpirun = false;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Attempt run_once(const LaunchedTraining& training, const std::string& run, int64_t number) {
  Attempt attempt{.number = number,
                  .ranks = training.ranks,
                  .started = utc_now(),
                  .cause = {},
                  .host = {},
                  .message = {},
                  .first_checkpoint = newest_checkpoint(run)};
  const auto begin = Clock::now();
  const std::string exit = run + "/exit.json";
  const auto before = identity_of(exit);
  const pid_t child = start(training.words);
  require(child > 0, text("cannot start ", training.words.front(), ": ", strerror(errno)));
  attempt.code = exit_code_of(child, training.by_mpirun);
  attempt.seconds = seconds_since(begin);
  if (identity_of(exit) != before) read_exit(exit, attempt);
  attempt.last_checkpoint = newest_checkpoint(run);
  return attempt;
}

void report(const std::string& run, const Attempt& attempt) {
  std::error_code error;
  std::filesystem::create_directories(run, error);
  std::ofstream(run + "/attempts.jsonl", std::ios::app) << json_line(attempt);
}

// The largest mesh of fewer ranks.
std::optional<LaunchedTraining> smaller(const LaunchedTraining& training, const RunConfig& config) {
  for (int64_t ranks = training.ranks - 1; training.ranks_at && ranks >= 1; --ranks)
    if (const std::optional<std::string> settings = nearest_mesh(config, ranks, 0)) return training.with(ranks, *settings);
  return std::nullopt;
}

std::string ending(const Attempt& a) {
  const std::string step = a.step >= 0 ? " after step " + std::to_string(a.step) : "";
  return "attempt " + std::to_string(a.number) + " ended with " + std::to_string(a.code) + step +
         (a.message.empty() ? "" : ": " + a.message);
}

}  // namespace

std::string json_line(const Attempt& a) {
  const Json line{{"attempt", a.number},
                  {"started", a.started},
                  {"seconds", a.seconds},
                  {"ranks", a.ranks},
                  {"code", a.code},
                  {"cause", a.cause},
                  {"rank", a.rank},
                  {"host", a.host},
                  {"step", a.step},
                  {"first_checkpoint", a.first_checkpoint},
                  {"last_checkpoint", a.last_checkpoint},
                  {"message", a.message}};
  return line.dump() + "\n";
}

Next next_after(const std::vector<Attempt>& attempts, int64_t max_restarts) {
  using enum Next::Kind;
  const Attempt& last = attempts.back();
  if (last.code == number_of(ExitCode::done)) return {.kind = done, .why = {}};
  if (last.code == number_of(ExitCode::stopped)) return {.kind = stopped, .why = {}};
  // But for the numerics, once more where it has run before: a lock not yet free, a server not yet back.
  const bool again = attempts.size() > 1 && attempts[attempts.size() - 2].code != last.code;
  for (const ExitCode code : {ExitCode::usage, ExitCode::data, ExitCode::checkpoint, ExitCode::numerics})
    if (last.code == number_of(code) && (!again || code == ExitCode::numerics))
      return {.kind = give_up, .why = "the same would happen again"};
  if (last.code == 126 || last.code == 127) return {.kind = give_up, .why = "the command cannot be run"};

  size_t vain = 0, same = 0;  // attempts at the end without a new checkpoint; of them, at the end, equal
  while (vain < attempts.size() && !attempts[attempts.size() - 1 - vain].made_progress()) ++vain;
  while (same < vain && alike(attempts[attempts.size() - 1 - same], last)) ++same;
  const std::string where =
      (last.rank >= 0 ? " on rank " + std::to_string(last.rank) : "") + (last.host.empty() ? "" : " (" + last.host + ")");
  if (same >= kLoop)
    return {.kind = give_up,
            .why = std::to_string(same) + " attempts in a row ended the same way, after step " + std::to_string(last.step) + where +
                   ", without a new checkpoint: a crash loop"};
  if (static_cast<int64_t>(vain) > max_restarts)
    return {.kind = give_up, .why = std::to_string(vain) + " attempts in a row made no new checkpoint (--max-restarts)"};
  const double delay = last.code < number_of(ExitCode::internal) && last.code > 1 ? 5
                       : vain <= 1                                                ? 0
                                   : std::min(kLongestDelay, static_cast<double>(int64_t{1} << std::min<size_t>(vain - 2, 10)));
  return {.kind = restart, .why = {}, .delay = delay, .fewer = same >= 2 && last.rank >= 0};
}

ExitCode run_supervise(const SuperviseOptions& options) {
  watch_signals();
  // When one rank has died, Open MPI would give the others a second to end by themselves, and wait for another: what they have to
  // say is on disk.
  set_environment_default("OMPI_MCA_odls_base_sigkill_timeout", "0");
  LaunchedTraining training = take_apart(options.command);
  const RunConfig config = read_config(training.config, training.set);
  const std::string run = config.train.runs + "/" + config.train.name;
  std::vector<Attempt> attempts;
  for (;;) {
    attempts.push_back(run_once(training, run, static_cast<int64_t>(attempts.size()) + 1));
    const Attempt& last = attempts.back();
    report(run, last);
    const Next next = next_after(attempts, options.max_restarts);
    if (next.kind == Next::Kind::done || next.kind == Next::Kind::stopped || stop_signal() != 0)
      return static_cast<ExitCode>(last.code);
    complain("supervise: " + ending(last));
    if (next.kind == Next::Kind::give_up) {
      complain("supervise: gave up: " + next.why);
      return static_cast<ExitCode>(last.code);
    }
    if (const auto fewer = next.fewer && options.elastic ? smaller(training, config) : std::nullopt) {
      complain("supervise: continues with " + std::to_string(fewer->ranks) + " ranks instead of " + std::to_string(training.ranks));
      training = *fewer;
    }
    for (const auto begin = Clock::now(); stop_signal() == 0 && Clock::now() - begin < std::chrono::duration<double>(next.delay);)
      std::this_thread::sleep_for(kPoll);
    if (stop_signal() != 0) return ExitCode::stopped;
    complain("supervise: attempt " + std::to_string(attempts.size() + 1) + " continues from " +
             (last.last_checkpoint >= 0 ? "step " + std::to_string(last.last_checkpoint) : "the beginning"));
  }
}

}  // namespace trireme
