// World: simulated machines in one thread of one process. Each simulated process has threads of its
// own (fibers), files, signals and memory; a seed decides who runs next, how long each call takes
// and what fails.
//
// The product's code runs unchanged: the program that links test/simulation/ defines the C
// library's calls itself (files_calls.cpp and others). Called by a simulated thread they end here,
// otherwise they pass on to the C library.
#pragma once

#include <cxxabi.h>
#include <dirent.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "test/emulation/fiber.h"
#include "test/simulation/disk.h"
#include "test/simulation/heap.h"
#include "test/simulation/messages.h"
#include "test/simulation/random.h"

namespace trireme::simulation {

constexpr int64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;  // in the clock's nanoseconds
constexpr int kSignals = 65;

struct Process;

struct Thread {
  int id;
  Process* process;
  std::function<void()> body;
  std::unique_ptr<emulation::Fiber> fiber;
  Heap* heap = nullptr;  // that owns what it allocates, while it does not run
  void* caught[2] = {};  // the language's exceptions of this thread, while it does not run
  uint64_t ticket = 0;   // of its entry in the queue; 0: it waits for a wake-up alone
  const void* waits_on = nullptr;
  bool woken = false, ended = false;
  int64_t calls = 0, checked_lock = -1;  // made; of them, the last that saw its process hold the run's lock
};

// An open file, directory or output.
struct OpenFile {
  Disk* disk = nullptr;
  int inode = -1;
  int64_t position = 0;
  std::string path;
  bool used = false, terminal = false, writable = false, appends = false;
};

// A directory that is being read, and a stream of the C library.
struct Listing {
  int descriptor;
  std::vector<std::pair<std::string, bool>> names;  // and whether it is a directory
  size_t next = 0;
  dirent entry{};
  bool open = true;
};
struct Stream {
  int descriptor;
  bool open = true;
};

constexpr int kFirstFile = 1000;  // descriptor

struct Process {
  int id = 0, node = 0, group = 0;
  Process* parent = nullptr;
  std::string name;
  std::map<std::string, std::string> environment;
  std::deque<OpenFile> files;  // by descriptor, from kFirstFile
  std::deque<Listing> listings;
  std::deque<Stream> streams;
  std::deque<Thread*> threads;  // the first is the main thread
  void (*handlers[kSignals])(int) = {};
  Heap heap;
  bool dead = false, reaped = false, dies_with_parent = false;
  int64_t frozen_until = 0;  // by SIGSTOP or a cgroup
  int status = 0;            // as waitpid's
  int64_t job = 0, rank = -1;
  Member* member = nullptr;  // of its job's world
  bool finalized = false;
  std::string lock_words;  // that it wrote to the lock it took last
  int signalled = 0;       // the last signal that it was sent
};

struct Weather {
  double error = 0;       // probabilities for each call: EIO or ENOSPC,
  double interrupt = 0;   // EINTR,
  double shorten = 0;     // transfers of fewer bytes,
  double read_error = 0;  // EIO when reading,
  double slow = 0;        // a call of up to `slowest`
  int64_t slowest = kSecond;
  int64_t full_from = -1, full_until = -1;  // the disk is full in this time
};

class World {
 public:
  explicit World(uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Starts a process whose main thread runs `program`, which returns the exit code.
  struct Start {
    std::string name;
    int node = 0;
    Process* parent = nullptr;
    std::map<std::string, std::string> environment{};
    int64_t job = 0, rank = -1;
  };
  Process& spawn(const Start& start, std::function<int()> program);
  Thread& start_thread(Process& process, std::function<void()> body);

  // Runs until no thread can continue or `calls` calls are made; false in the second case.
  bool run(int64_t calls);
  void at_call(int64_t call, std::function<void()> event);  // before this call
  void cancel_events();
  void after(int64_t nanoseconds, std::function<void()> event);  // from now

  // Calls of the running thread.
  void pass(const char* call, std::string_view detail);  // takes some time, in which others may run
  bool wait(const void* address, int64_t until = -1);    // false: not woken in time
  void sleep(int64_t nanoseconds);
  void wake(const void* address, int count = 1 << 30);
  [[noreturn]] void exit(int code);
  Process& self() { return *self_; }
  Thread* running() { return running_; }

  void send(Process& process, int signal);
  void die(Process& process, int status);
  Process* find(int id);
  std::deque<std::unique_ptr<Process>>& processes() { return processes_; }
  void lose_node(int node);
  void lose_power(double survival);

  Disk& disk_of(std::string_view path, int node, std::string_view& rest);  // the file system of an absolute path
  Messages messages;
  Disk shared;
  std::map<int, Disk> memory;  // /dev/shm of each node

  std::map<const void*, Thread*> holders;  // of locked mutexes; a process that dies leaves its own

  Random random;
  Weather weather;
  int64_t now = kSecond, calls = 0;
  // Called before each change of names on the shared disk with its kind and paths.
  std::function<void(const char* call, const std::string& from, const std::string& to)> watch;
  std::function<void(const std::string& path)> looked;                    // at a file's facts
  std::function<int(const char* call, const std::string& path)> planted;  // 1: the call is skipped and reports success

  // Notes a line of the schedule, if it is wanted.
  template <class... Words>
  void note(const Words&... words) {
    if (traced) trace_line((std::string() + ... + std::string(words)));
  }
  bool traced = false;
  std::vector<std::string> trace;
  std::string failure;
  void fail(const std::string& what);  // the first counts

 private:
  struct Entry {
    int64_t time;
    uint64_t ticket;
    Thread* thread;
    bool operator>(const Entry& other) const { return time != other.time ? time > other.time : ticket > other.ticket; }
  };
  void trace_line(const std::string& line);
  void schedule(Thread& thread, int64_t time);
  void pause();
  void resume(Thread& thread);
  void bury();
  void run_events();
  static void enter(void* thread);
  std::unique_ptr<emulation::Fiber> take_fiber();

  std::deque<std::unique_ptr<Process>> processes_;
  std::deque<std::unique_ptr<Thread>> threads_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::multimap<int64_t, std::function<void()>> at_calls_, timers_;
  std::vector<Process*> dead_;
  Thread* running_ = nullptr;
  Process* self_ = nullptr;
  uint64_t tickets_ = 0;
};

// The world of the running simulated thread; nullptr outside of any.
World* simulated();

// Calls in a scope go to the real system.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  World* world_;
};

// A system call of the running thread: takes time, may be refused, and gives its result.
class Call {
 public:
  explicit Call(const char* name, std::string_view detail = {});
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  World* operator->() const { return world_; }
  Process& process() const { return world_->self(); }
  // True, with errno, if the seed lets a call that reads or writes fail.
  bool fails(bool writes);
  int error(int number) const;  // sets errno; -1

 private:
  Unowned unowned_;
  World* world_;
  const char* name_;
  std::string_view detail_;
};

}  // namespace trireme::simulation
