// Threads that their owner may leave to themselves. One that waits for a disk or a driver that hangs must not keep a run from
// ending. Owner and thread share a state, which then belongs to the thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace trireme {

struct LooseState {
  std::mutex mutex;  // of what follows, and of what a state adds
  std::condition_variable changed;
  bool ended = false;  // the owner wants the thread to end
  bool done = false;   // the thread is about to
  bool left = false;   // the thread owns the state
};

// For the owner: waits until the thread has ended. After `patience` it calls leaving(), under the mutex, and leaves the thread to
// itself, with the state.
template <class State, class Leaving>
void end_or_leave(std::unique_ptr<State>& state, std::thread& thread, Clock::duration patience, const Leaving& leaving) {
  std::unique_lock lock(state->mutex);
  state->ended = true;
  state->changed.notify_all();
  if (state->changed.wait_for(lock, patience, [&] { return state->done; })) {
    lock.unlock();
    return thread.join();
  }
  leaving();
  state->left = true;
  thread.detach();
  lock.unlock();
  (void)state.release();
}

// For the thread, as its last act: it uses the state no more.
template <class State>
void end_loose_thread(State& state) {
  std::unique_lock lock(state.mutex);
  state.done = true;
  state.changed.notify_all();
  if (!state.left) return;
  lock.unlock();
  const std::unique_ptr<State> own(&state);
}

}  // namespace trireme
