#include "train/telemetry/tensorboard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/replace_file.h"
#include "parallel/world.h"
#include "train/telemetry/tensorboard_format.h"

namespace trireme {
namespace {

constexpr size_t kMostEventBytes = 16 << 20;
constexpr std::string_view kBeginning = "events.out.tfevents.";

// The seconds in a new file's name: TensorBoard reads files in the order of their names, so they are later than in all others.
int64_t seconds_of_name(const std::string& directory) {
  auto seconds = static_cast<int64_t>(unix_seconds());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kBeginning)) continue;
    int64_t other = 0;
    std::from_chars(name.data() + kBeginning.size(), name.data() + name.size(), other);
    if (other < 9'999'999'999) seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

// The scalars of records, as records of the file.
class Scalars {
 public:
  std::string text{};

  void operator()(const StepRecord& r) {
    step_ = r.step;
    add("train/loss", r.loss), add("train/grad_norm", r.grad_norm), add("train/lr", r.lr);
    add("train/tokens", static_cast<double>(r.tokens)), add("train/tokens_per_second", r.tokens_per_second);
    add_known("train/mfu", r.mfu), add_known("train/mfu_full", r.mfu_full), add_known("train/hfu", r.hfu);
    add("time/step_ms", r.step_ms), add("time/data_ms", r.data_ms);
    for (const PartTime& part : r.parts) add("time/parts/" + part.name + "_ms", part.ms);
  }
  void operator()(const EvalRecord& r) {
    step_ = r.step;
    add("eval/loss", r.val_loss), add_known("eval/bits_per_byte", r.bits_per_byte), add("time/eval_seconds", r.seconds);
  }
  void operator()(const ChoicesRecord& r) {
    step_ = r.step;
    add("eval/" + r.name + "/acc", r.accuracy), add("eval/" + r.name + "/acc_norm", r.normalised);
  }
  void operator()(const EventRecord& r) {
    step_ = r.step;
    add("event/" + r.event, 1);
  }
  void operator()(const BusyRecord& r) {
    step_ = r.step;
    add("time/slowest_rank", static_cast<double>(r.slowest)), add("time/slowest_ratio", r.ratio);
  }
  void operator()(const SaveRecord& r) {
    step_ = r.step;
    const std::string of = r.in_memory ? "save/memory_" : "save/";
    add(of + "seconds", r.seconds), add(of + "stall_ms", r.stall_ms), add(of + "bytes", static_cast<double>(r.bytes));
  }
  void operator()(const EnergyRecord& r) {
    step_ = r.step;
    const auto add_figure = [this](const char* tag, const std::optional<double>& value) {
      if (value) add(tag, *value);
    };
    add_figure("energy/joules_per_token", r.joules_per_token), add_figure("energy/power_w", r.watts);
    if (r.measured) add("energy/kwh", r.kwh());
    add_figure("energy/co2_g", r.co2_grams);
    add_figure("cost/so_far", r.cost), add_figure("cost/projected", r.projected_cost);
    add_figure("cost/per_billion_tokens", r.cost_per_billion_tokens);
  }

 private:
  void add(const std::string& tag, double value) {
    text += tensorboard_record(scalar_event(time_, step_, tag, static_cast<float>(value)));
  }
  void add_known(const std::string& tag, double value) {
    if (!std::isnan(value)) add(tag, value);
  }
  const double time_ = unix_seconds();
  int64_t step_ = 0;
};

}  // namespace

TensorBoardFile::TensorBoardFile(std::string directory, int64_t restored) : directory_(std::move(directory)) {
  const double time = unix_seconds();
  waiting_ = tensorboard_record(version_event(time)) + tensorboard_record(start_event(time, restored + 1));
}

TensorBoardFile::~TensorBoardFile() {
  if (file_ >= 0) close(file_);
}

void TensorBoardFile::read(const RunRecord& record) {
  Scalars scalars;
  std::visit(scalars, record);
  if (waiting_.size() + scalars.text.size() <= kMostEventBytes) waiting_ += scalars.text;
}

void TensorBoardFile::open() {
  path_ = text(directory_, "/", kBeginning, seconds_of_name(directory_), ".", host_name(), ".", getpid(), ".0");
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file_ < 0) throw unwritable(path_);
}

void TensorBoardFile::caught_up() {
  if (file_ < 0) open();
  if (ftruncate(file_, written_) != 0 || !write_all(file_, waiting_)) throw unwritable(path_);
  written_ += std::ssize(waiting_);
  waiting_.clear();
}

}  // namespace trireme
