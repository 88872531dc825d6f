#include "train/run/stop_notice.h"

#include <chrono>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "train/health/signals.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kLook{50};

std::string steps_of(int64_t count) { return std::to_string(count) + (count == 1 ? " step" : " steps"); }

}  // namespace

StopNotice::StopNotice(bool speaks) : speaks_(speaks) {
  if (speaks) thread_ = std::thread([this] { watch(); });
}

StopNotice::~StopNotice() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StopNotice::speak(std::function<void(const std::string&)> say) {
  const std::lock_guard lock(mutex_);
  say_ = std::move(say);
}

std::string StopNotice::line(int signal) const {
  const int64_t begun = begun_, ended = ended_, saved = saved_, lost = begun - saved;
  const std::string name = " (" + signal_name(signal) + ")";
  std::string line;
  if (begun <= 0)
    line = std::string("stopping before ") + (begun < 0 ? "training begins" : "the first step") + name;
  else if (begun > ended)
    line = text("stopping: step ", begun, " will be finished and saved", name);
  else if (evaluating_)
    line = text("stopping: the evaluation is abandoned, step ", ended, lost > 0 ? " will be saved" : " is saved", name);
  else
    line = text("stopping: step ", ended, lost > 0 ? " will be saved" : " is saved", name);
  if (signal != SIGINT) return line;
  return line + "; press Ctrl-C again to end at once" + (begun > 0 && lost > 0 ? ", losing " + steps_of(lost) : "");
}

std::string stopped_line(int signal, int64_t step) {
  const std::string after = step > 0 ? "after step " + std::to_string(step) + ", which is saved" : "before the first step";
  return "stopped by " + signal_name(signal) + " " + after + "; the same command continues";
}

void StopNotice::acknowledge(int signal) {
  const std::lock_guard lock(mutex_);
  acknowledge_locked(signal);
}

void StopNotice::acknowledge_locked(int signal) {
  if (!speaks_ || signal == 0 || std::exchange(acknowledged_, true)) return;
  say_ ? say_(line(signal)) : complain(line(signal));
}

void StopNotice::watch() {
  std::unique_lock lock(mutex_);
  while (!acknowledged_ && !wake_.wait_for(lock, kLook, [&] { return ending_; })) acknowledge_locked(stop_signal());
}

}  // namespace trireme
