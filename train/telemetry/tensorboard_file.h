// A run's records as an event file of TensorBoard.
#pragma once

#include <string>

#include "train/telemetry/record_readers.h"

namespace trireme {

// RUN/events.out.tfevents.SECONDS.HOST.PROCESS.0, a new file for each start of the run. TensorBoard drops what earlier files have
// after `restored`, the step from which this start continues (0: from none). A full disk delays what is written; beyond 16 MiB,
// records are lost.
class TensorBoardFile : public RecordReader {
 public:
  TensorBoardFile(std::string directory, int64_t restored);  // creates no file yet
  ~TensorBoardFile() override;
  TensorBoardFile(const TensorBoardFile&) = delete;
  TensorBoardFile& operator=(const TensorBoardFile&) = delete;

  std::string name() const override { return "TensorBoard's event file"; }
  void read(const RunRecord& record) override;
  void caught_up() override;  // writes what it has

 private:
  void open();

  const std::string directory_;
  std::string path_, waiting_;
  int file_ = -1;
  int64_t written_ = 0;
};

}  // namespace trireme
