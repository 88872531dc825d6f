// RunView: follows the directory of a run, also one that is running. Reads alone: it writes nothing and takes no lock.
#pragma once

#include <string>

#include "base/clock.h"
#include "train/telemetry/followed_file.h"
#include "train/telemetry/run_picture.h"

namespace trireme {

class RunView {
 public:
  // A run's directory. DataError if it is none.
  explicit RunView(const std::string& directory);

  // Reads what has changed; of metrics.jsonl as much as `most` allows. A file that cannot be read keeps its earlier content.
  const RunPicture& update(Clock::duration most);
  const RunPicture& picture() const { return picture_; }

 private:
  void read_config();
  void read_metrics(Clock::duration most);
  void read_starts();
  void read_exit();
  void read_checkpoints();
  void read_data();
  void read_log();
  void judge();
  void begin_anew();
  double changed(const char* name) const;  // time of a file's last change; 0: there is no such file

  RunPicture picture_;
  FollowedFile metrics_;
  double config_time_ = 0, starts_time_ = 0, exit_time_ = 0, data_time_ = 0, checkpoints_time_ = -1, log_time_ = 0;
  double checkpoints_again_ = 0;  // when to look again although nothing has changed: one had a problem; 0: never
  size_t starts_shown_ = 0;       // as events
  size_t starts_listed_ = 0;      // when the environment was read
  double exit_shown_ = 0;
};

}  // namespace trireme
