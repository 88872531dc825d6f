#include "train/telemetry/metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/replace_file.h"
#include "checkpoint/run_id.h"
#include "parallel/world.h"
#include "train/telemetry/log.h"

namespace trireme {

namespace {

constexpr size_t kMostRanksInLine = 1024;

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
  // A float's value, or one that no float can hold.
  Line& exact_float(std::string_view key, double value) {
    const bool fits = !(std::abs(value) > std::numeric_limits<float>::max()) || std::isinf(value);
    return fits ? exact(key, static_cast<float>(value)) : exact(key, value);
  }
  Line& known(std::string_view key, std::optional<double> value) { return value ? exact(key, *value) : *this; }
  Line& measured(std::string_view key, double value, int decimals) {
    begin(key);
    line_ += std::isfinite(value) ? fixed(value, decimals) : "null";
    return *this;
  }
  Line& measured(std::string_view key, const std::vector<double>& values, int decimals) {
    begin(key);
    for (size_t i = 0; i < values.size(); ++i) line_ += (i == 0 ? "[" : ", ") + fixed(values[i], decimals);
    line_ += "]";
    return *this;
  }
  Line& word(std::string_view key, std::string_view value) {
    begin(key);
    line_ += Json(value).dump();
    return *this;
  }
  Line& parts(std::string_view key, const std::vector<PartTime>& parts) {
    if (parts.empty()) return *this;
    begin(key);
    Line inner;
    for (const PartTime& part : parts) inner.measured(part.name, part.ms, 3);
    line_ += inner.line_ + "}";
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

std::string id_of(const std::string& directory) {
  try {
    return read_run_id(directory);
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

std::string json_line(const StepRecord& r) {
  return Line()
      .integer("step", r.step)
      .exact("loss", static_cast<float>(r.loss))
      .exact_float("grad_norm", r.grad_norm)
      .exact("lr", r.lr)
      .integer("tokens", r.tokens)
      .measured("step_ms", r.step_ms, 3)
      .measured("data_ms", r.data_ms, 3)
      .measured("tokens_per_second", r.tokens_per_second, 1)
      .measured("mfu", r.mfu, 4)
      .measured("mfu_full", r.mfu_full, 4)
      .measured("hfu", r.hfu, 4)
      .parts("parts_ms", r.parts)
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
  Line line;
  line.integer("step", r.step).word("event", r.event).integer("since", r.since);
  if (r.rank >= 0) line.integer("rank", r.rank).word("host", r.host).word("text", r.text);
  return line.end();
}

std::string json_line(const BusyRecord& r) {
  Line line;
  line.integer("step", r.step).integer("slowest_rank", r.slowest).measured("slowest_ratio", r.ratio, 4);
  if (r.ms.size() <= kMostRanksInLine) line.measured("busy_ms", r.ms, 3);
  return line.end();
}

std::string json_line(const SaveRecord& r) {
  return Line()
      .integer("step", r.step)
      .integer("saved_bytes", r.bytes)
      .measured("saved_seconds", r.seconds, 3)
      .measured("write_gb_per_second", static_cast<double>(r.bytes) / r.write_seconds / 1e9, 3)
      .measured("save_stall_ms", r.stall_ms, 3)
      .word("tier", r.in_memory ? "memory" : "disk")
      .word("run", r.run)
      .integer("scrubbed_bytes", r.scrubbed)
      .end();
}

namespace {

std::optional<double> as_kwh(std::optional<double> joules) {
  return joules ? std::optional(*joules / kJoulesPerKwh) : std::nullopt;
}

// The GPUs of a record in three numbers.
void add_gpus(Line& line, const EnergyRecord& r) {
  std::optional<double> hottest;
  int64_t throttled = 0, gpus = 0;
  for (const MeteredRank& rank : r.ranks) {
    const std::optional<GpuHealth>& gpu = rank.reading.gpu;
    if (!gpu) continue;
    ++gpus, throttled += gpu->throttled() ? 1 : 0;
    if (gpu->celsius) hottest = std::max(hottest.value_or(*gpu->celsius), *gpu->celsius);
  }
  if (gpus > 0) line.integer("gpus", gpus).known("hottest_celsius", hottest).integer("throttled_gpus", throttled);
}

}  // namespace

std::string json_line(const EnergyRecord& r) {
  Line line;
  line.integer("step", r.step).known("joules_per_token", r.joules_per_token).known("power_w", r.watts);
  if (r.measured) line.exact("kwh", r.kwh()).known("projected_kwh", as_kwh(r.projected_joules));
  line.known("co2_g", r.co2_grams).known("projected_co2_g", r.projected_co2_grams);
  line.known("cost", r.cost).known("projected_cost", r.projected_cost);
  line.known("cost_per_billion_tokens", r.cost_per_billion_tokens);
  if (r.cost) line.word("currency", r.currency);
  line.exact("rank_hours", r.totals.rank_hours);
  if (r.measured) line.exact("metered_tokens", r.totals.metered_tokens);
  add_gpus(line, r);
  if (r.processor_nodes > 0) line.integer("processor_nodes", r.processor_nodes);
  return line.word("run", r.run).end();
}

void write_exit(const std::string& directory, ExitCode code, const std::string& cause, int rank, int64_t step,
                const std::string& message, const std::string& host) noexcept try {
  const Json exit{{"code", static_cast<int>(code)},
                  {"cause", cause},
                  {"rank", rank},
                  {"host", host},
                  {"step", step},
                  {"message", message},
                  {"run", id_of(directory)}};
  const std::string path = directory + "/exit.json";
  const std::string line = exit.dump({.indent = 2}) + "\n";
  if (!replace_file_durably(path, line)) complain("warning: cannot write " + path);
} catch (const std::exception& error) {
  complain(std::string("warning: cannot write exit.json: ") + error.what());
}

}  // namespace trireme
