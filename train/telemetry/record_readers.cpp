#include "train/telemetry/record_readers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "train/telemetry/loose_thread.h"

namespace trireme {

struct RecordQueue::State : LooseState {
  explicit State(std::unique_ptr<RecordReader> reader) : reader(std::move(reader)) {}

  const std::unique_ptr<RecordReader> reader;
  std::deque<RunRecord> waiting;
  std::vector<std::string> warnings;
  bool dropped = false, failed = false;  // and reported

  // Called under the mutex.
  void warn(bool& said, const std::string& problem) {
    if (!std::exchange(said, true)) warnings.push_back("warning: " + reader->name() + problem + "; the run continues");
  }
  // Waits for records. False at the end.
  bool take(std::deque<RunRecord>& records) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended || !waiting.empty(); });
    records = std::exchange(waiting, {});
    return !records.empty();
  }
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      warn(failed, std::string(": ") + error.what());
    }
  }
};

RecordQueue::RecordQueue(std::unique_ptr<RecordReader> reader, Clock::duration patience)
    : patience_(patience), state_(std::make_unique<State>(std::move(reader))), thread_([state = state_.get()] { feed(*state); }) {}

RecordQueue::~RecordQueue() { finish(); }

void RecordQueue::finish() {
  if (!thread_.joinable()) return;
  end_or_leave(state_, thread_, patience_, [this] {
    state_->warn(state_->failed, " has not ended in time and is left to itself");
    last_warnings_ = std::exchange(state_->warnings, {});
  });
}

void RecordQueue::send(const RunRecord& record) {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->ended) return;
    if (state_->waiting.size() >= kMost) return state_->warn(state_->dropped, " is slow and lacks some records");
    state_->waiting.push_back(record);
  }
  state_->changed.notify_all();
}

std::vector<std::string> RecordQueue::take_warnings() {
  if (!state_) return std::exchange(last_warnings_, {});
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->warnings, {});
}

void RecordQueue::feed(State& state) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);  // the steps come first
  std::deque<RunRecord> records;
  while (state.take(records)) {
    for (const RunRecord& record : records) state.guarded([&] { state.reader->read(record); });
    state.guarded([&] { state.reader->caught_up(); });
  }
  state.guarded([&] { state.reader->finish(); });
  end_loose_thread(state);
}

}  // namespace trireme
