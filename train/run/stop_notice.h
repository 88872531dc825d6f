// StopNotice: acknowledges a request to stop within a tenth of a second, whatever the training thread is doing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trireme {

class StopNotice {
 public:
  // `speaks` on rank 0; silent on other ranks. Lines go to stderr until speak().
  explicit StopNotice(bool speaks);
  ~StopNotice();
  StopNotice(const StopNotice&) = delete;
  StopNotice& operator=(const StopNotice&) = delete;

  // Sends the line to `say` from now on; nullptr: to stderr again.
  void speak(std::function<void(const std::string&)> say);

  // The progress that the line names.
  void begun(int64_t step) { begun_ = step; }
  void ended(int64_t step) { ended_ = step; }
  void saved(int64_t step) { saved_ = step; }
  void evaluating(bool now) { evaluating_ = now; }
  // Says the line now, once, if a rank was asked to stop: signal 0 means that none was.
  void acknowledge(int signal);

  std::string line(int signal) const;

 private:
  void watch();
  void acknowledge_locked(int signal);

  std::atomic<int64_t> begun_ = -1, ended_ = -1, saved_ = 0;  // steps; -1: training has not begun
  std::atomic<bool> evaluating_ = false;
  const bool speaks_;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool ending_ = false, acknowledged_ = false;
  std::function<void(const std::string&)> say_;
  std::thread thread_;
};

// The last line of a run that was stopped by this signal after a step, which is saved; step 0: before the first.
std::string stopped_line(int signal, int64_t step);

// Directs the line to `say` while it lives.
class StopNoticeVoice {
 public:
  StopNoticeVoice(StopNotice& notice, std::function<void(const std::string&)> say) : notice_(notice) {
    notice_.speak(std::move(say));
  }
  ~StopNoticeVoice() { notice_.speak(nullptr); }
  StopNoticeVoice(const StopNoticeVoice&) = delete;
  StopNoticeVoice& operator=(const StopNoticeVoice&) = delete;

 private:
  StopNotice& notice_;
};

}  // namespace trireme
