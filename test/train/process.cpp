#include "test/train/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "base/process_state.h"
#include "test/data/scratch.h"

namespace trireme {
namespace {

bool is_zombie(pid_t process) { return state_of_process(process).letter == 'Z'; }

// True of the process that mpirun has started, which passes signals on to the rank; a rank that runs commands has more threads.
bool has_one_thread(pid_t process) {
  return read_text("/proc/" + std::to_string(process) + "/status").find("\nThreads:\t1\n") != std::string::npos;
}

// The process of a rank among those that have its variables: not the one that passes signals on, and not the copy of the rank that
// is about to become a command.
pid_t rank_among(const std::vector<pid_t>& processes) {
  const auto first = std::ranges::find_if(
      processes, [&](pid_t process) { return std::ranges::count(processes, state_of_process(process).parent) == 0; });
  const pid_t started = first == processes.end() ? processes.front() : *first;
  const auto rank = std::ranges::find_if(processes, [&](pid_t process) { return state_of_process(process).parent == started; });
  return rank != processes.end() && has_one_thread(started) ? *rank : started;
}

}  // namespace

Process::Process(const std::string& directory, const std::vector<std::string>& arguments, int ranks, const std::string& program) {
  std::vector<std::string> words;
  if (ranks > 1) words = {"mpirun", "--oversubscribe", "-n", std::to_string(ranks)};
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  launcher_ = words.front() == "mpirun";
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  const int out = open(out_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600),
            err = open(err_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  dup2(out, 1), dup2(err, 2), dup2(open("/dev/null", O_RDONLY), 0);
  if (chdir(directory.c_str()) != 0) _exit(126);
  // As root, on fewer cores than ranks, and without binding several ranks to one core. Looking for fast networks, which a single
  // machine does not need, takes each start 0.2 s.
  if (ranks > 1 || std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.ends_with("mpirun"); }))
    for (const char* variable :
         {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
          "OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_pml=ob1", "OMP_NUM_THREADS=1", "ASAN_OPTIONS=detect_leaks=0"})
      putenv(const_cast<char*>(variable));
  execvp(argv[0], argv.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const { kill(pid_, number); }

std::vector<pid_t> Process::children() const {
  const std::string process = std::to_string(pid_);
  std::ifstream in("/proc/" + process + "/task/" + process + "/children");
  return {std::istream_iterator<pid_t>(in), {}};
}

bool Process::running() {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

std::string Process::err() const { return read_text(err_); }

Ended Process::wait() {
  int status = 0;
  rusage usage{};
  bool left_alone = false, seen = false;
  // Open MPI's mpirun may wait for itself for ever when a rank is killed while it starts.
  auto lives = std::chrono::steady_clock::now();
  while (launcher_ && running() && !left_alone) {
    usleep(5000);
    const std::vector<pid_t> ranks = children();
    const bool any = !std::ranges::all_of(ranks, is_zombie);
    if (any || !seen) lives = std::chrono::steady_clock::now();
    seen |= any;
    left_alone = std::chrono::steady_clock::now() - lives > std::chrono::seconds(10);
  }
  if (left_alone) kill(pid_, SIGKILL);
  if (wait4(pid_, &status, 0, &usage) != pid_) throw std::runtime_error("wait4 failed");
  pid_ = -1;
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_text(out_),
          .err = read_text(err_),
          .peak_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024,
          .left_alone = left_alone};
}

Ended run_launched(const std::vector<std::string>& command, int ranks) {
  const Scratch scratch;
  return Process(scratch.path(), {command.begin() + 1, command.end()}, ranks, command.front()).wait();
}

std::map<int, pid_t> launched_ranks(const std::string& directory) {
  std::map<int, std::vector<pid_t>> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path() / "cwd", error) != std::filesystem::path(directory) || error) continue;
    const std::string program = std::filesystem::read_symlink(entry.path() / "exe", error).filename();
    if (!program.starts_with("trireme") && !program.starts_with("test_")) continue;  // a command that a rank has started
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    for (std::string variable; std::getline(in, variable, '\0');)
      if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) found[std::stoi(variable.substr(21))].push_back(std::stoi(name));
  }
  std::map<int, pid_t> ranks;
  for (const auto& [rank, processes] : found) ranks[rank] = rank_among(processes);
  return ranks;
}

bool any_alive(const std::map<int, pid_t>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const auto& rank) { return kill(rank.second, 0) == 0 && !is_zombie(rank.second); });
}

Ended run_trireme(const std::string& directory, const std::vector<std::string>& arguments) {
  return Process(directory, arguments).wait();
}

Ended run_trireme_line(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  const Scratch scratch;
  return run_trireme(scratch.path(), words);
}

}  // namespace trireme
