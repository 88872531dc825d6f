#include "train/telemetry/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "base/json.h"
#include "base/replace_file.h"
#include "parallel/world.h"
#include "train/telemetry/log.h"

namespace trireme {

namespace {

// {"a": 1, "b": 2.5}: keys in the order of the calls.
class Line {
 public:
  Line& integer(std::string_view key, int64_t value) {
    begin(key);
    line_ += std::to_string(value);
    return *this;
  }
  // The shortest digits that give the same float, or the same double, back.
  template <class Float>
  Line& exact(std::string_view key, Float value) {
    begin(key);
    if (!std::isfinite(value)) {
      line_ += "null";
      return *this;
    }
    std::array<char, 40> buffer;
    line_.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
    return *this;
  }
  Line& measured(std::string_view key, double value, int decimals) {
    begin(key);
    line_ += std::isfinite(value) ? fixed(value, decimals) : "null";
    return *this;
  }
  Line& word(std::string_view key, std::string_view value) {
    begin(key);
    line_ += Json(value).dump();
    return *this;
  }
  std::string end() { return line_ + "}\n"; }

 private:
  void begin(std::string_view key) {
    line_ += line_.empty() ? "{\"" : ", \"";
    line_ += key;
    line_ += "\": ";
  }
  std::string line_;
};

double number(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != nullptr && value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

int64_t integer(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != nullptr && value->is_integer() ? value->get<int64_t>() : 0;
}

// Hands the record of a line to the reader. False if it is not a line of ours or belongs to a later step.
bool read_line(const std::string& line, int64_t resume_step, const MetricsReader& reader) {
  const Json object = Json::parse_or_null(line);
  if (!object.is_object()) return false;
  const int64_t step = integer(object, "step");
  if (step < 1 || step > resume_step) return false;
  if (object.contains("loss") && reader.step) {
    reader.step({.step = step,
                 .loss = number(object, "loss"),
                 .grad_norm = number(object, "grad_norm"),
                 .lr = number(object, "lr"),
                 .tokens = integer(object, "tokens"),
                 .step_ms = number(object, "step_ms"),
                 .tokens_per_second = number(object, "tokens_per_second"),
                 .data_ms = number(object, "data_ms"),
                 .mfu = number(object, "mfu")});
  }
  if (object.contains("val_loss") && reader.eval) {
    reader.eval({.step = step,
                 .val_loss = number(object, "val_loss"),
                 .bits_per_byte = number(object, "bits_per_byte"),
                 .val_tokens = integer(object, "val_tokens"),
                 .seconds = number(object, "seconds")});
  }
  if (object.contains("choices") && object["choices"].is_string() && reader.choices) {
    reader.choices({.step = step,
                    .name = object["choices"].get<std::string>(),
                    .accuracy = number(object, "acc"),
                    .accuracy_error = number(object, "acc_stderr"),
                    .normalised = number(object, "acc_norm"),
                    .normalised_error = number(object, "acc_norm_stderr"),
                    .chance = number(object, "chance"),
                    .questions = integer(object, "questions"),
                    .seconds = number(object, "seconds")});
  }
  if (object.contains("saved_bytes") && object.value("tier", "") == "disk" && reader.saved)
    reader.saved({.step = step, .seconds = number(object, "saved_seconds"), .stall_ms = number(object, "save_stall_ms")});
  return true;
}

// Rewrites the file with its lines up to resume_step; returns how many others there were.
int64_t keep_until(int64_t resume_step, const std::string& path, const MetricsReader& reader) {
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());  // left by a process that was killed
  const int to = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  bool fine = to >= 0;
  int64_t dropped = 0;
  std::ifstream from(path, std::ios::binary);
  std::string kept;
  for (std::string line; fine && std::getline(from, line);) {
    if (!read_line(line, resume_step, reader)) {
      ++dropped;
      continue;
    }
    kept += line + '\n';
    if (kept.size() > (1 << 20)) {
      fine = write_all(to, kept);
      kept.clear();
    }
  }
  fine = fine && !from.bad() && write_all(to, kept) && fsync(to) == 0;
  const int reason = errno;
  if (to >= 0 && close(to) != 0) throw unwritable(temporary);
  errno = reason;
  if (!fine || std::rename(temporary.c_str(), path.c_str()) != 0) throw unwritable(temporary);
  return dropped;
}

}  // namespace

std::string json_line(const StepRecord& r) {
  return Line()
      .integer("step", r.step)
      .exact("loss", static_cast<float>(r.loss))
      .exact("grad_norm", static_cast<float>(r.grad_norm))
      .exact("lr", r.lr)
      .integer("tokens", r.tokens)
      .measured("step_ms", r.step_ms, 3)
      .measured("data_ms", r.data_ms, 3)
      .measured("tokens_per_second", r.tokens_per_second, 1)
      .measured("mfu", r.mfu, 4)
      .end();
}

std::string json_line(const EvalRecord& r) {
  return Line()
      .integer("step", r.step)
      .exact("val_loss", static_cast<float>(r.val_loss))
      .exact("bits_per_byte", static_cast<float>(r.bits_per_byte))
      .integer("val_tokens", r.val_tokens)
      .measured("seconds", r.seconds, 3)
      .end();
}

std::string json_line(const ChoicesRecord& r) {
  return Line()
      .integer("step", r.step)
      .word("choices", r.name)
      .exact("acc", r.accuracy)
      .exact("acc_stderr", r.accuracy_error)
      .exact("acc_norm", r.normalised)
      .exact("acc_norm_stderr", r.normalised_error)
      .exact("chance", r.chance)
      .integer("questions", r.questions)
      .measured("seconds", r.seconds, 3)
      .end();
}

std::string json_line(const EventRecord& r) {
  return Line().integer("step", r.step).word("event", r.event).integer("since", r.since).end();
}

std::string json_line(const SaveRecord& r) {
  return Line()
      .integer("step", r.step)
      .integer("saved_bytes", r.bytes)
      .measured("saved_seconds", r.seconds, 3)
      .measured("write_gb_per_second", static_cast<double>(r.bytes) / r.write_seconds / 1e9, 3)
      .measured("save_stall_ms", r.stall_ms, 3)
      .word("tier", r.in_memory ? "memory" : "disk")
      .end();
}

MetricsFile::MetricsFile(const std::string& directory, int64_t resume_step, const MetricsReader& earlier) {
  const std::string path = directory + "/metrics.jsonl";
  if (resume_step >= 0) dropped_ = keep_until(resume_step, path, earlier);
  const int begin = resume_step < 0 ? O_TRUNC : 0;
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | begin, 0666);
  if (file_ < 0) throw unwritable(path);
  size_ = lseek(file_, 0, SEEK_END);
}

MetricsFile::~MetricsFile() { close(file_); }

bool MetricsFile::append(std::string_view line) {
  if (torn_ && ftruncate(file_, size_) != 0) return false;
  torn_ = !write_all(file_, line);
  if (torn_) {
    torn_ = ftruncate(file_, size_) != 0;
    return false;
  }
  size_ += static_cast<int64_t>(line.size());
  return true;
}

bool MetricsFile::sync() { return fdatasync(file_) == 0; }

void write_exit(const std::string& directory, ExitCode code, const std::string& cause, int rank, int64_t step,
                const std::string& message) noexcept try {
  const Json exit{{"code", static_cast<int>(code)},
                  {"cause", cause},
                  {"rank", rank},
                  {"host", host_name()},
                  {"step", step},
                  {"message", message}};
  const std::string path = directory + "/exit.json";
  const std::string line = exit.dump({.indent = 2}) + "\n";
  if (!replace_file_durably(path, line)) complain("warning: cannot write " + path);
} catch (const std::exception& error) {
  complain(std::string("warning: cannot write exit.json: ") + error.what());
}

}  // namespace trireme
