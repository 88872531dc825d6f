// The file half of metrics.h: continues metrics.jsonl after a resume and outlasts a full disk.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <vector>

#include "base/json.h"
#include "base/replace_file.h"
#include "checkpoint/lineage.h"
#include "train/telemetry/metrics.h"

namespace trireme {

namespace {

double number(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != nullptr && value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// Hands the record of a line to the reader. False if it is not a line of ours or belongs to a later step.
bool read_line(const std::string& line, int64_t resume_step, const MetricsReader& reader) {
  const Json object = Json::parse_or_null(line);
  if (!object.is_object()) return false;
  const int64_t step = object.integer_or("step", 0);
  if (step < 1 || step > resume_step) return false;
  if (object.contains("loss") && reader.step) {
    reader.step({.step = step,
                 .loss = number(object, "loss"),
                 .grad_norm = number(object, "grad_norm"),
                 .lr = number(object, "lr"),
                 .tokens = object.integer_or("tokens", 0),
                 .step_ms = number(object, "step_ms"),
                 .tokens_per_second = number(object, "tokens_per_second"),
                 .data_ms = number(object, "data_ms"),
                 .mfu = number(object, "mfu"),
                 .mfu_full = number(object, "mfu_full"),
                 .hfu = number(object, "hfu")});
  }
  if (object.contains("val_loss") && reader.eval) {
    reader.eval({.step = step,
                 .val_loss = number(object, "val_loss"),
                 .bits_per_byte = number(object, "bits_per_byte"),
                 .val_tokens = object.integer_or("val_tokens", 0),
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
                    .questions = object.integer_or("questions", 0),
                    .seconds = number(object, "seconds")});
  }
  if (object.contains("saved_bytes") && object.value("tier", "") == "disk" && reader.saved)
    reader.saved({.step = step, .seconds = number(object, "saved_seconds"), .stall_ms = number(object, "save_stall_ms")});
  return true;
}

// Calls line(text) for each line, with its newline if it has one, while that returns true. Nothing for a file that is not there.
template <class Line>
void for_each_line(const std::string& path, Line line) {
  const int from = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (from < 0 && errno == ENOENT) return;
  if (from < 0) throw unwritable(path);
  std::string text;
  std::vector<char> some(1 << 20);
  bool more = true;
  ssize_t n = 0;
  for (size_t begin = 0; more && (n = read(from, some.data(), some.size())) > 0;) {
    text.append(some.data(), static_cast<size_t>(n));
    for (size_t end; more && (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      more = line(std::string_view(text).substr(begin, end + 1 - begin));
    text.erase(0, begin);
    begin = 0;
  }
  const int reason = errno;
  close(from);
  errno = reason;
  if (n < 0) throw unwritable(path);
  if (more && !text.empty()) line(std::string_view(text));
}

// Rewrites the file with its lines up to resume_step; returns how many others there were. Adds what it keeps to the chain.
int64_t keep_until(int64_t resume_step, const std::string& path, const MetricsReader& reader, ChainedDigest& chain) {
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());  // left by a process that was killed
  const int to = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  bool fine = to >= 0;
  int64_t dropped = 0;
  std::string kept;
  if (fine)
    for_each_line(path, [&](std::string_view line) {
      const std::string words(line.substr(0, line.size() - (line.ends_with('\n') ? 1 : 0)));
      if (!read_line(words, resume_step, reader)) return ++dropped > 0;
      kept += words + '\n';
      chain.add(words + '\n');
      if (kept.size() > (1 << 20)) {
        fine = write_all(to, kept);
        kept.clear();
      }
      return fine;
    });
  fine = fine && write_all(to, kept) && fsync(to) == 0;
  const int reason = errno;
  if (to >= 0 && close(to) != 0) throw unwritable(temporary);
  errno = reason;
  if (!fine || std::rename(temporary.c_str(), path.c_str()) != 0) throw unwritable(temporary);
  return dropped;
}

constexpr int64_t kMostWaiting = 16 << 20;  // bytes of lines that wait for room on the disk

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, const RecordStart& start, const MetricsReader& earlier)
    : written_(ChainedDigest::of("metrics", start.run)) {
  const std::string path = directory + "/metrics.jsonl";
  if (start.step >= 0) {
    require_expected(path, start);
    dropped_ = keep_until(start.step, path, earlier, written_);
  }
  const int begin = start.step < 0 ? O_TRUNC : 0;
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | begin, 0666);
  if (file_ < 0) throw unwritable(path);
}

// Sets a file aside whose beginning is not what the checkpoint was saved with.
void MetricsFile::require_expected(const std::string& path, const RecordStart& start) {
  if (!start.expected || start.expected->bytes == 0) return;
  ChainedDigest found = written_;
  for_each_line(path, [&](std::string_view line) {
    found.add(line);
    return found.bytes < start.expected->bytes;
  });
  if (found == *start.expected) return;
  const bool shorter = found.bytes < start.expected->bytes;
  problem_ = text("warning: ", path,
                  found.bytes == 0 ? " is missing or empty"
                  : shorter        ? " is shorter"
                                   : " has other lines",
                  found.bytes == 0 ? "" : " than it had at the checkpoint", ": the record begins anew after step ", start.step);
  if (const std::string aside = set_aside(Io(), path); !aside.empty()) problem_ += "; the old one is kept as " + aside;
}

MetricsFile::~MetricsFile() { close(file_); }

bool MetricsFile::write(std::string_view line) {
  if (torn_ && ftruncate(file_, written_.bytes) != 0) return false;
  torn_ = !write_all(file_, line);
  if (torn_) {
    torn_ = ftruncate(file_, written_.bytes) != 0;
    return false;
  }
  written_.add(line);
  return true;
}

bool MetricsFile::flush() {
  while (!waiting_.empty() && write(waiting_.front())) {
    waiting_bytes_ -= static_cast<int64_t>(waiting_.front().size());
    waiting_.pop_front();
  }
  return waiting_.empty();
}

bool MetricsFile::append(std::string_view line) {
  if (flush() && write(line)) return true;
  const auto bytes = static_cast<int64_t>(line.size());
  if (waiting_bytes_ + bytes > kMostWaiting)
    ++lost_;
  else
    waiting_.emplace_back(line), waiting_bytes_ += bytes;
  return false;
}

bool MetricsFile::sync() { return fdatasync(file_) == 0; }

}  // namespace trireme
