#include "train/telemetry/record_readers.h"

#include <exception>
#include <utility>

namespace trireme {

RecordQueue::RecordQueue(std::unique_ptr<RecordReader> reader) : reader_(std::move(reader)), thread_([this] { feed(); }) {}

void RecordQueue::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RecordQueue::send(const RunRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMost) return warn(dropped_, " is slow and lacks some records");
    waiting_.push_back(record);
  }
  changed_.notify_all();
}

std::vector<std::string> RecordQueue::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

// Called under the mutex.
void RecordQueue::warn(bool& said, const std::string& problem) {
  if (!std::exchange(said, true)) warnings_.push_back("warning: " + reader_->name() + problem + "; the run continues");
}

// Waits for records. False at the end.
bool RecordQueue::take(std::deque<RunRecord>& records) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
  records = std::exchange(waiting_, {});
  return !records.empty();
}

void RecordQueue::read(const std::deque<RunRecord>& records) {
  const auto guarded = [this](const auto& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      warn(failed_, std::string(": ") + error.what());
    }
  };
  for (const RunRecord& record : records) guarded([&] { reader_->read(record); });
  guarded([&] { reader_->caught_up(); });
}

void RecordQueue::feed() {
  std::deque<RunRecord> records;
  while (take(records)) read(records);
}

}  // namespace trireme
