// Readers of a run's records beside metrics.jsonl. None can delay a step or stop the run: each has a
// thread and a bounded queue of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "train/telemetry/metrics.h"

namespace trireme {

using RunRecord = std::variant<StepRecord, EvalRecord, ChoicesRecord, EventRecord, SaveRecord>;

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual std::string name() const = 0;            // for messages: "TensorBoard's file"
  virtual void read(const RunRecord& record) = 0;  // may take its time; its first error becomes a warning
  virtual void caught_up() {}                      // called when no record waits; errors likewise
};

// The queue of one reader and the thread that feeds it.
class RecordQueue {
 public:
  static constexpr size_t kMost = 4096;  // records that wait; a newer one is dropped and counted

  explicit RecordQueue(std::unique_ptr<RecordReader> reader);
  ~RecordQueue() { finish(); }
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  void send(const RunRecord& record);        // never waits for the reader
  void finish();                             // waits until the reader has read all; nothing is sent afterwards
  std::vector<std::string> take_warnings();  // a line for the reader's first error, and for the first record that was dropped

 private:
  void feed();
  bool take(std::deque<RunRecord>& records);
  void read(const std::deque<RunRecord>& records);
  void warn(bool& said, const std::string& problem);

  const std::unique_ptr<RecordReader> reader_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<RunRecord> waiting_;
  std::vector<std::string> warnings_;
  bool ended_ = false, dropped_ = false, failed_ = false;
  std::thread thread_;
};

}  // namespace trireme
