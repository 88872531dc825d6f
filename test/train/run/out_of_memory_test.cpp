// One allocation, or a thread's start, fails anywhere in a start, a save, a restore or a step: the run ends with a code and words,
// or does without; its newest checkpoint is whole, and the same command continues to the bits of an undisturbed run.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

constexpr std::array kVariables{"LD_PRELOAD",        "FAULTY_RANK",        "FAULTY_ALLOC_AT",
                                "FAULTY_ALLOC_FROM", "FAULTY_ALLOC_SITE",  "FAULTY_ALLOC_SITES",
                                "FAULTY_ALLOC_HIT",  "FAULTY_ALLOC_COUNT", "FAULTY_ALLOC_DEPTH"};

// Failing allocations of one rank, for the lifetime of the object.
class Shortage {
 public:
  Shortage(int ranks, const std::map<std::string, std::string>& variables) {
    setenv("LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_memory.so", 1);
    setenv("FAULTY_ALLOC_DEPTH", "6", 1);
    if (ranks > 1) setenv("FAULTY_RANK", "1", 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Shortage() {
    for (const char* name : kVariables) unsetenv(name);
  }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
};

bool names_mpi(const std::string& stack) {
  constexpr std::array kLibraries{"libmpi", "libpmix", "libopen", "libevent", "mca_"};
  return std::ranges::any_of(kLibraries, [&](const char* library) { return stack.find(library) != std::string::npos; });
}

// A call stack that allocates, or starts a thread.
struct Site {
  std::string number, kind;
  std::string group;  // libraries of its innermost frames, and the kind
};

std::vector<Site> read_sites(const std::string& path) {
  std::vector<Site> sites;
  std::istringstream in(read_text(path));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Site site;
    std::string call;
    words >> site.number >> call >> site.kind;
    site.group = site.kind;
    std::string frame;
    for (int i = 0; i < 6 && words >> frame; ++i) site.group += " " + frame.substr(0, frame.find('+'));
    sites.push_back(site);
  }
  return sites;
}

enum class Part { start, restore };  // a start with three steps and their saves, or the same from a checkpoint

class Shortages {
 public:
  // Runs that leave the same files are continued once, unless each is to continue.
  Shortages(Part part, int ranks, bool each_continues) : part_(part), ranks_(ranks), each_continues_(each_continues) {
    succeed(place_.train(settings("whole", steps()), ranks_));
    succeed(place_.train(settings("origin", 3), ranks_));
    prepare("recorded");
    const Shortage record(ranks_,
                          {{"FAULTY_ALLOC_SITES", place_.scratch / "sites"}, {"FAULTY_ALLOC_COUNT", place_.scratch / "calls"}});
    succeed(place_.train(settings("recorded", steps()), ranks_));
    sites_ = read_sites(place_.scratch / "sites");
    calls_ = std::stoll(read_text(place_.scratch / "calls"));
  }

  const std::vector<Site>& sites() const { return sites_; }
  int64_t calls() const { return calls_; }
  const std::map<std::string, int64_t>& outcomes() const { return outcomes_; }

  // One of each group of sites, then others. Of two ranks none within MPI: it may lose a message then, and the run ends by a limit
  // of ten minutes.
  std::vector<Site> some(size_t count) const {
    std::map<std::string, std::vector<Site>> groups;
    for (const Site& site : sites_)
      if (ranks_ == 1 || !names_mpi(site.group)) groups[site.group].push_back(site);
    std::vector<Site> chosen;
    for (uint64_t round = 0; chosen.size() < count; ++round) {
      const auto& [group, sites] = *std::next(groups.begin(), static_cast<int64_t>(philox64(21, 2 * round) % groups.size()));
      chosen.push_back(sites[philox64(21, 2 * round + 1) % sites.size()]);
    }
    return chosen;
  }

  void check(const std::string& variable, const std::string& value) {
    INFO(variable << "=" << value << (part_ == Part::start ? ", start" : ", restore") << ", ranks " << ranks_);
    prepare("run");
    const std::string hit = place_.scratch / "hit";
    std::filesystem::remove(hit);
    Ended ended;
    {
      const Shortage shortage(ranks_, {{variable, value}, {"FAULTY_ALLOC_HIT", hit}});
      ended = place_.train(settings("run", steps()), ranks_);
    }
    const bool failed = std::filesystem::exists(hit);
    INFO("exit code " << ended.code << "\n" << ended.err << "\n" << (failed ? read_text(hit) : "no call failed"));
    ++outcomes_[!failed ? "no call failed" : ended.code == 0 ? "0: done without" : std::string(text("exit code ", ended.code))];
    const bool names_it =
        ended.err.find("out of memory") != std::string::npos || ended.err.find("cannot start a thread") != std::string::npos ||
        ended.err.find("out of threads") != std::string::npos ||
        ended.err.find("memory allocation failed") != std::string::npos ||  // in HDF5's words, which may crash then
        in_mpi(ended, hit);
    // mpirun may end with the code that MPI_Init gives up with, or crash itself over what a rank's MPI_Init sends it without
    // memory; and a rank that MPI_Init leaves alone is refused.
    const bool mpirun_crashed = ended.code == 139 && ended.err.find("*** Process received signal ***") != std::string::npos &&
                                ended.err.find("(pmix_server_") != std::string::npos;
    const bool in_init = ranks_ > 1 && in_mpi(ended, hit) && (ended.code == 1 || ended.code == 2 || mpirun_crashed);
    // Without memory the C library's loader keeps a lock, and Open MPI loses a message, for which ranks then wait: a hang, and
    // named.
    const std::string stack = failed ? read_text(hit) : "";
    const bool loses = stack.find("ld-linux") != std::string::npos || names_mpi(stack);
    const bool waited = ended.code == 71 && loses && named_hang(ended.err);
    CHECK((ended.code == 0 || (failed && (ended.code == 70 || in_init) && names_it) || waited));
    if (ended.code == 0) CHECK(place_.differ("run", "whole") == 0);
    if (!continued_.insert(files_left()).second && !each_continues_) return;
    const Ended next = place_.train(settings("run", steps()), ranks_);
    INFO(next.err);
    CHECK(next.code == 0);
    CHECK_THAT(next.err, !ContainsSubstring("damaged"));
    CHECK(place_.differ("run", "whole") == 0);
  }

 private:
  int64_t steps() const { return part_ == Part::start ? 3 : 6; }
  static bool named_hang(const std::string& words) {
    return words.find("hang: rank ") != std::string::npos ||  // the rank itself, or the one that its message does not reach
           words.find(" s for the start of all ranks: it ends") != std::string::npos;
  }
  // Open MPI names what failed in its own words.
  static bool in_mpi(const Ended& ended, const std::string& hit) { return ended.err.size() > 100 && names_mpi(read_text(hit)); }
  std::vector<std::string> settings(const std::string& name, int64_t steps) const {
    std::vector<std::string> all{"train.name=" + name, "train.steps=" + std::to_string(steps),
                                 "checkpoint.every=1", "train.schedule=constant",
                                 "train.warmup=1",     "train.eval_every=2"};
    if (ranks_ > 1) all.push_back("parallel.zero=1");
    return all;
  }
  // Names and sizes of the run's files, without that of the message.
  std::string files_left() const {
    std::set<std::string> files;
    const std::filesystem::path run = place_.scratch / "runs/run";
    if (std::filesystem::exists(run))
      for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
        const std::string path = entry.path().lexically_relative(run);
        const bool sized = entry.is_regular_file() && path != "exit.json";
        files.insert(path + (sized ? " " + std::to_string(entry.file_size()) : ""));
      }
    std::string all;
    for (const std::string& file : files) all += file + "\n";
    return all;
  }
  void prepare(const std::string& name) {
    std::filesystem::remove_all(place_.scratch / ("runs/" + name));
    if (part_ == Part::restore)
      std::filesystem::copy(place_.scratch / "runs/origin", place_.scratch / ("runs/" + name),
                            std::filesystem::copy_options::recursive);
  }

  Workplace place_;
  Part part_;
  int ranks_;
  bool each_continues_;
  std::vector<Site> sites_;
  int64_t calls_ = 0;
  std::map<std::string, int64_t> outcomes_;
  std::set<std::string> continued_;  // what runs left that were continued
};

std::string report(const Shortages& shortages, const std::string& what) {
  std::string line = what + ":";
  for (const auto& [outcome, count] : shortages.outcomes()) line += text(" ", count, " x ", outcome, ";");
  return line;
}

void check_some(Part part, int ranks, size_t count) {
  Shortages shortages(part, ranks, true);
  REQUIRE(shortages.sites().size() > 1000);
  for (const Site& site : shortages.some(count)) shortages.check("FAULTY_ALLOC_SITE", site.number);
  for (uint64_t i = 0; i < count / 8; ++i)
    shortages.check("FAULTY_ALLOC_FROM", std::to_string(1 + philox64(22, i) % static_cast<uint64_t>(shortages.calls())));
}

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::atoll(value) : otherwise;
}

// Stacks that two ranks have and one rank has not, outside the MPI library.
std::set<std::string> stacks_of_two(Part part, const std::vector<Site>& sites) {
  const Shortages one(part, 1, false);
  std::set<std::string> known;
  for (const Site& site : one.sites()) known.insert(site.number);
  std::set<std::string> own;
  for (const Site& site : sites)
    if (!known.contains(site.number) && !names_mpi(site.group)) own.insert(site.number);
  return own;
}

// Every stack's first call, and every so many calls one by one and all from there on. Of two ranks, all stacks of our own that one
// rank has not, and each 25th of the others. With TRIREME_SITES_EVERY=2 and TRIREME_SITES_FIRST=0, then 1, two processes share
// them. With TRIREME_SITE, that stack alone.
void check_all(Part part, int ranks, int64_t stride) {
  Shortages shortages(part, ranks, false);
  if (const char* one = std::getenv("TRIREME_SITE"); one != nullptr) {
    shortages.check("FAULTY_ALLOC_SITE", one);
    WARN(report(shortages, one));
    return;
  }
  int64_t done = 0;
  const int64_t every = number_from("TRIREME_SITES_EVERY", 1), first = number_from("TRIREME_SITES_FIRST", 0);
  const int64_t others = ranks == 1 ? 1 : 25;
  const std::set<std::string> own = ranks == 1 ? std::set<std::string>{} : stacks_of_two(part, shortages.sites());
  for (const Site& site : shortages.sites()) {
    const uint64_t number = std::stoull(site.number, nullptr, 16) / 2;  // the last bit is always set
    const int64_t period = own.contains(site.number) ? every : every * others;
    if (number % static_cast<uint64_t>(period) == static_cast<uint64_t>(first))
      shortages.check("FAULTY_ALLOC_SITE", site.number), ++done;
  }
  for (int64_t call = 1 + first * stride; call <= shortages.calls(); call += every * stride) {
    shortages.check("FAULTY_ALLOC_AT", std::to_string(call));
    shortages.check("FAULTY_ALLOC_FROM", std::to_string(call));
  }
  WARN(report(shortages, text(done, " of ", shortages.sites().size(), " stacks, ", own.size(), " of two ranks only, every ",
                              every * stride, "th of ", shortages.calls(), " calls")));
}

}  // namespace

TEST_CASE("an allocation fails: some of the places of a start, its saves and three steps", "[unsanitized]") {
  check_some(Part::start, 1, 32);
}
TEST_CASE("an allocation fails: some of the places of a restore and three steps", "[unsanitized]") {
  check_some(Part::restore, 1, 16);
}
TEST_CASE("an allocation fails: some of the places of two ranks", "[unsanitized]") { check_some(Part::start, 2, 6); }

TEST_CASE("an allocation fails: every place of a start", "[.][soak]") { check_all(Part::start, 1, 199); }
TEST_CASE("an allocation fails: every place of a restore", "[.][soak]") { check_all(Part::restore, 1, 199); }
TEST_CASE("an allocation fails: every place of two ranks", "[.][soak]") { check_all(Part::start, 2, 997); }
TEST_CASE("an allocation fails: every place of a restore of two ranks", "[.][soak]") { check_all(Part::restore, 2, 997); }

TEST_CASE("a thread that cannot start is named with the limits to raise", "[unsanitized]") {
  Shortages shortages(Part::start, 1, true);
  std::set<std::string> seen;
  for (const Site& site : shortages.sites())
    if (site.kind == "pthread_create" && seen.insert(site.number).second) shortages.check("FAULTY_ALLOC_SITE", site.number);
  CHECK(seen.size() >= 4);
}

TEST_CASE("each limit of the address space is a coded exit, up to one that suffices", "[unsanitized]") {
  const Workplace place;
  int ended = 0;
  for (int64_t kilobytes = 60'000; kilobytes <= 520'000; kilobytes += 20'000) {
    const std::string name = "limit-" + std::to_string(kilobytes);
    std::string command = text("ulimit -v ", kilobytes, "; exec ", TRIREME_BUILD, "/trireme");
    for (const std::string& word : Workplace::arguments({"train.name=" + name, "train.steps=3"})) command += " '" + word + "'";
    const Ended run = Process(place.scratch.path(), {"-c", command}, 1, "/bin/sh").wait();
    INFO(kilobytes << ": " << run.code << " " << run.err);
    const bool loader = run.code == 127 && run.err.find("error while loading shared libraries") != std::string::npos;
    CHECK((run.code == 0 || loader ||
           (run.code == 70 &&
            (run.err.find("out of ") != std::string::npos || run.err.find("cannot start a thread") != std::string::npos))));
    ended += run.code == 70;
  }
  CHECK(ended > 0);
}

TEST_CASE("a crash names its signal and its stack, leaves exit.json, and ends all ranks with 70", "[unsanitized]") {
  const Workplace place;
  for (const int ranks : {1, 2})
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) {
      const std::string name = text("crash-", ranks, "-", signal);
      Process training(place.scratch.path(),
                       Workplace::arguments({"train.name=" + name, "train.steps=1000000", "train.schedule=constant"}), ranks);
      const auto begin = std::chrono::steady_clock::now();
      while (read_text(place.scratch / ("runs/" + name + "/metrics.jsonl")).empty() &&
             std::chrono::steady_clock::now() - begin < std::chrono::seconds(60))
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (ranks == 1)
        training.signal(signal);
      else
        kill(launched_ranks(place.scratch.path()).at(1), signal);
      const Ended ended = training.wait();
      INFO(name << ended.err);
      CHECK(ended.code == 70);
      const char* abbreviation = sigabbrev_np(signal);
      CHECK_THAT(ended.err, ContainsSubstring(std::string("crashed while ")) &&
                                ContainsSubstring(std::string("SIG") + abbreviation) &&
                                ContainsSubstring("report it with the stack below") && ContainsSubstring("libc.so"));
      const Json exit = Json::parse(place.run(name, "exit.json"));
      CHECK(exit.at("code") == 70);
      CHECK(exit.at("cause") == "crash");
      CHECK(exit.at("rank") == ranks - 1);
    }
}

}  // namespace trireme
