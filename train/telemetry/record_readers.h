// Readers of a run's records beside metrics.jsonl. None can delay a step or stop the run: each has a
// thread and a bounded queue of its own.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "train/telemetry/metrics.h"

namespace trireme {

using RunRecord = std::variant<StepRecord, EvalRecord, ChoicesRecord, EventRecord, BusyRecord, SaveRecord, EnergyRecord>;

// Called by one thread; what it uses is its own. It may take its time, and its first error becomes a warning.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual std::string name() const = 0;  // for messages: "TensorBoard's file"
  virtual void read(const RunRecord& record) = 0;
  virtual void caught_up() {}  // no record waits
  virtual void finish() {}     // all is read
};

// The queue of one reader and the thread that feeds it.
class RecordQueue {
 public:
  static constexpr size_t kMost = 4096;  // records that wait; a newer one is dropped and counted
  static constexpr std::chrono::seconds kPatience{5};

  // `patience`: how long finish() waits.
  explicit RecordQueue(std::unique_ptr<RecordReader> reader, Clock::duration patience = kPatience);
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  void send(const RunRecord& record);  // never waits for the reader
  // Waits until the reader has read all; nothing is sent afterwards. A reader that needs longer, for example on a disk that hangs,
  // is left to itself, with its memory.
  void finish();
  std::vector<std::string> take_warnings();  // a line for the reader's first error, and for the first record that was dropped

 private:
  struct State;
  static void feed(State& state);

  const Clock::duration patience_;
  std::vector<std::string> last_warnings_;  // of a reader that was left to itself
  std::unique_ptr<State> state_;            // none once the thread owns it
  std::thread thread_;
};

}  // namespace trireme
