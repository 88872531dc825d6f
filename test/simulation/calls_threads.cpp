// The C library's calls on threads, locks and time, for this whole program: those of simulated
// threads end in the World.
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <ctime>
#include <map>

#include "test/simulation/next.h"
#include "test/simulation/world.h"

using namespace trireme::simulation;

namespace {

constexpr int kFutexWait = 0, kFutexWake = 1, kFutexPrivate = 128, kFutexRealTime = 256;  // see futex(2)
constexpr int64_t kDay = 86'400;                                                          // seconds
constexpr int64_t kDate = 20'000 * kDay;  // the real-time clock at the steady clock's zero

int64_t time_of(const timespec& time) { return int64_t{time.tv_sec} * kSecond + time.tv_nsec; }
timespec time_from(int64_t nanoseconds) { return {.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond}; }

// The steady clock at a time of one of the clocks.
int64_t steady(clockid_t clock, const timespec& time) { return time_of(time) - (clock == CLOCK_REALTIME ? kDate * kSecond : 0); }

// Holders of locked mutexes. A process that dies leaves its own.
std::map<const void*, Thread*>& holders() { return simulated()->holders; }

bool is_free(const void* mutex) {
  const auto found = holders().find(mutex);
  return found == holders().end() || found->second->process->dead;
}

void lock_simulated(World& world, const void* mutex) {
  while (!is_free(mutex)) (void)world.wait(mutex);
  holders()[mutex] = world.running();
}

void unlock_simulated(World& world, const void* mutex) {
  holders().erase(mutex);
  world.wake(mutex, 1);
}

int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t until) {
  const Unowned unowned;
  World& world = *simulated();
  unlock_simulated(world, mutex);
  const bool woken = world.wait(condition, until);
  lock_simulated(world, mutex);
  return woken ? 0 : ETIMEDOUT;
}

long futex(int* address, int operation, int value, const timespec* timeout) {
  const Unowned unowned;
  World& world = *simulated();
  const int command = operation & ~(kFutexPrivate | kFutexRealTime);
  if (command == kFutexWake) return world.wake(address, value), 0;
  if (*address != value) return errno = EAGAIN, -1;
  int64_t until = -1;
  if (timeout != nullptr && command == kFutexWait) until = world.now + time_of(*timeout);
  if (timeout != nullptr && command != kFutexWait)
    until = steady((operation & kFutexRealTime) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, *timeout);
  if (until >= 0 && until <= world.now) return errno = ETIMEDOUT, -1;
  return world.wait(address, until) ? 0 : (errno = ETIMEDOUT, -1);
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) noexcept {
  static const Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> real("pthread_create");
  World* const world = simulated();
  if (world == nullptr) return real.call(id, attributes, work, argument);
  const Unowned unowned;
  Thread& thread = world->start_thread(world->self(), [work, argument] { (void)work(argument); });
  *id = reinterpret_cast<pthread_t>(&thread);
  return 0;
}
int pthread_join(pthread_t id, void** result) {
  static const Next<int(pthread_t, void**)> real("pthread_join");
  World* const world = simulated();
  if (world == nullptr) return real.call(id, result);
  const Unowned unowned;
  const auto* const thread = reinterpret_cast<Thread*>(id);
  while (!thread->ended) (void)world->wait(thread);
  return 0;
}
int pthread_detach(pthread_t id) noexcept {
  static const Next<int(pthread_t)> real("pthread_detach");
  return simulated() == nullptr ? real.call(id) : 0;
}
pthread_t pthread_self() noexcept {
  static const Next<pthread_t()> real("pthread_self");
  return simulated() == nullptr ? real.call() : reinterpret_cast<pthread_t>(simulated()->running());
}

// 1 while the call runs, 2 afterwards.
int pthread_once(pthread_once_t* once, void (*call)()) {
  static const Next<int(pthread_once_t*, void (*)())> real("pthread_once");
  if (simulated() == nullptr || *once == 2) return real.call(once, call);
  if (*once == 1) return 0;
  *once = 1;
  call();
  *once = 2;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const Next<int(pthread_mutex_t*)> real("pthread_mutex_lock");
  if (simulated() == nullptr) return real.call(mutex);
  const Unowned unowned;
  lock_simulated(*simulated(), mutex);
  return 0;
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static const Next<int(pthread_mutex_t*)> real("pthread_mutex_trylock");
  if (simulated() == nullptr) return real.call(mutex);
  const Unowned unowned;
  if (!is_free(mutex)) return EBUSY;
  holders()[mutex] = simulated()->running();
  return 0;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static const Next<int(pthread_mutex_t*)> real("pthread_mutex_unlock");
  if (simulated() == nullptr) return real.call(mutex);
  const Unowned unowned;
  unlock_simulated(*simulated(), mutex);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static const Next<int(pthread_cond_t*, pthread_mutex_t*)> real("pthread_cond_wait");
  return simulated() == nullptr ? real.call(condition, mutex) : wait_for_condition(condition, mutex, -1);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static const Next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)> real("pthread_cond_clockwait");
  if (simulated() == nullptr) return real.call(condition, mutex, clock, until);
  return wait_for_condition(condition, mutex, std::max<int64_t>(0, steady(clock, *until)));
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static const Next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)> real("pthread_cond_timedwait");
  if (simulated() == nullptr) return real.call(condition, mutex, until);
  return wait_for_condition(condition, mutex, std::max<int64_t>(0, steady(CLOCK_REALTIME, *until)));
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static const Next<int(pthread_cond_t*)> real("pthread_cond_signal");
  if (simulated() == nullptr) return real.call(condition);
  return simulated()->wake(condition, 1), 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static const Next<int(pthread_cond_t*)> real("pthread_cond_broadcast");
  if (simulated() == nullptr) return real.call(condition);
  return simulated()->wake(condition), 0;
}
int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  static const Next<int(pthread_cond_t*)> real("pthread_cond_destroy");
  return simulated() == nullptr ? real.call(condition) : 0;
}

// The language's run-time library waits for futures with futex.
long syscall(long number, ...) noexcept {
  static const Next<long(long, ...)> real("syscall");
  va_list rest;
  va_start(rest, number);
  long words[6];
  for (long& word : words) word = va_arg(rest, long);
  va_end(rest);
  if (simulated() == nullptr) return real.call(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  if (number == SYS_futex)
    return futex(reinterpret_cast<int*>(words[0]), static_cast<int>(words[1]), static_cast<int>(words[2]),
                 reinterpret_cast<const timespec*>(words[3]));
  errno = ENOSYS;
  return -1;
}

int sched_yield() noexcept {
  static const Next<int()> real("sched_yield");
  if (simulated() == nullptr) return real.call();
  const Call call("sched_yield");
  return 0;
}
int nanosleep(const timespec* time, timespec* left) {
  static const Next<int(const timespec*, timespec*)> real("nanosleep");
  if (simulated() == nullptr) return real.call(time, left);
  const Call call("sleep");
  call->sleep(time_of(*time));
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  static const Next<int(clockid_t, int, const timespec*, timespec*)> real("clock_nanosleep");
  if (simulated() == nullptr) return real.call(clock, flags, time, left);
  const Call call("sleep");
  call->sleep((flags & TIMER_ABSTIME) != 0 ? steady(clock, *time) - call->now : time_of(*time));
  return 0;
}
int usleep(useconds_t microseconds) {
  static const Next<int(useconds_t)> real("usleep");
  if (simulated() == nullptr) return real.call(microseconds);
  const Call call("sleep");
  call->sleep(microseconds * kMicrosecond);
  return 0;
}
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const Next<int(clockid_t, timespec*)> real("clock_gettime");
  World* const world = simulated();
  if (world == nullptr) return real.call(clock, time);
  *time = time_from(world->now + (clock == CLOCK_REALTIME ? kDate * kSecond : 0));
  return 0;
}
time_t time(time_t* result) noexcept {
  static const Next<time_t(time_t*)> real("time");
  if (simulated() == nullptr) return real.call(result);
  const time_t now = kDate + simulated()->now / kSecond;
  if (result != nullptr) *result = now;
  return now;
}
int gettimeofday(timeval* result, void* zone) noexcept {
  static const Next<int(timeval*, void*)> real("gettimeofday");
  if (simulated() == nullptr) return real.call(result, zone);
  *result = {.tv_sec = kDate + simulated()->now / kSecond, .tv_usec = simulated()->now % kSecond / 1000};
  return 0;
}
}
