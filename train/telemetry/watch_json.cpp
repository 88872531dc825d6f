#include "train/telemetry/watch_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/json.h"

namespace trireme {
namespace {

constexpr int kCurveDigits = 6, kBusyDigits = 4;
constexpr int64_t kLateSteps = 256;  // steps that a record of ranks or machines may come late
constexpr size_t kMostDataRows = 64;

void append_value(std::string& json, double value, int digits) {
  if (!std::isfinite(value)) {
    json += "null";
    return;
  }
  std::array<char, 40> buffer;
  char* const end = buffer.data() + buffer.size();
  json.append(buffer.data(), std::to_chars(buffer.data(), end, value, std::chars_format::general, digits).ptr);
}

// [x, y] for a bin of one point, else [first_x, last_x, least, greatest, mean, gaps]; gaps are left out if there are none.
void append_bin(std::string& json, const DownsampledCurve::Bin& bin) {
  json += "[" + std::to_string(bin.first_x);
  const auto value = [&](double y) { json += ",", append_value(json, bin.count > 0 ? y : StepRecord::kUnknown, kCurveDigits); };
  if (bin.first_x == bin.last_x && bin.count + bin.gaps == 1) {
    value(bin.min);
  } else {
    json += "," + std::to_string(bin.last_x);
    value(bin.min), value(bin.max), value(bin.mean());
    if (bin.gaps > 0) json += "," + std::to_string(bin.gaps);
  }
  json += "]";
}

// Bins from a step on: those that a page lacks or that have changed since.
std::string curve_json(const DownsampledCurve& curve, int64_t step) {
  std::string json = "{\"width\":" + std::to_string(curve.width()) + ",\"bins\":[";
  const auto newer = std::ranges::find_if(curve.bins(), [&](const DownsampledCurve::Bin& bin) { return bin.last_x >= step; });
  for (auto bin = newer; bin != curve.bins().end(); ++bin) {
    if (bin != newer) json += ",";
    append_bin(json, *bin);
  }
  return json + "]}";
}

std::string curves_json(const RunHistory& history, int64_t step) {
  std::string json;
  for (const auto& [name, curve] : history.curves) {
    const int64_t from = name == "power_w" ? step - kLateSteps : step;
    if (curve.bins().empty() || curve.bins().back().last_x < from) continue;
    json += (json.empty() ? "" : ",") + Json(name).dump() + ":" + curve_json(curve, from);
  }
  return "{" + json + "}";
}

std::string busy_json(const BusyMap& busy, int64_t step) {
  if (busy.columns().empty() || busy.columns().back().last_step < step) return "null";
  std::string json = "{\"ranks\":" + std::to_string(busy.ranks()) + ",\"ranks_per_row\":" + std::to_string(busy.ranks_per_row()) +
                     ",\"width\":" + std::to_string(busy.width()) + ",\"columns\":[";
  bool first = true;
  for (const BusyMap::Column& column : busy.columns()) {
    if (column.last_step < step) continue;
    json += std::string(first ? "" : ",") + "[" + std::to_string(column.first_step) + "," + std::to_string(column.last_step) + ",[";
    first = false;
    for (size_t row = 0; row < column.sums.size(); ++row) {
      if (row > 0) json += ",";
      append_value(json, column.sums[row] / static_cast<double>(column.count), kBusyDigits);
    }
    json += "]]";
  }
  return json + "]}";
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json slowest_json(const SlowestRank& slowest) {
  if (slowest.rank < 0) return {};
  return {{"step", slowest.step}, {"rank", slowest.rank}, {"ratio", number_or_null(slowest.ratio)}};
}

Json rows_json(const FactRows& rows) {
  Json all = Json::array();
  for (const auto& [name, value] : rows) {
    if (all.size() == kMostDataRows) break;
    all.push_back(Json::array({name, value}));
  }
  return all;
}

Json last_json(const RunHistory& history) {
  const StepRecord& last = history.last;
  return {{"loss", number_or_null(last.loss)},
          {"grad_norm", number_or_null(last.grad_norm)},
          {"lr", number_or_null(last.lr)},
          {"tokens", last.tokens},
          {"step_ms", number_or_null(last.step_ms)},
          {"data_ms", number_or_null(last.data_ms)},
          {"tokens_per_second", number_or_null(last.tokens_per_second)},
          {"mfu", number_or_null(last.mfu)},
          {"val_loss", history.eval.step > 0 ? number_or_null(history.eval.val_loss) : Json()},
          {"bits_per_byte", history.eval.step > 0 ? number_or_null(history.eval.bits_per_byte) : Json()},
          {"best_val_loss", history.best.step > 0 ? number_or_null(history.best.val_loss) : Json()},
          {"best_step", history.best.step}};
}

Json machine_json(const MachineUse& use) {
  if (!use.any()) return nullptr;
  return {{"kwh", number_or_null(use.kwh)},
          {"joules_per_token", number_or_null(use.joules_per_token)},
          {"co2_g", number_or_null(use.co2_g)},
          {"cost", number_or_null(use.cost)},
          {"projected_cost", number_or_null(use.projected_cost)},
          {"currency", use.currency},
          {"power_w", number_or_null(use.power_w)}};
}

Json exit_json(const RunPicture& run) {
  if (run.exit.time == 0) return nullptr;
  return {{"code", run.exit.code}, {"cause", run.exit.cause}, {"rank", run.exit.rank},
          {"host", run.exit.host}, {"step", run.exit.step},   {"message", run.exit.message}};
}

Json checkpoints_json(const std::vector<SavedState>& checkpoints) {
  Json all = Json::array();
  for (const SavedState& saved : checkpoints)
    all.push_back({{"name", saved.name},
                   {"step", saved.step},
                   {"bytes", saved.bytes},
                   {"time", saved.time > 0 ? Json(saved.time) : Json()},
                   {"problem", saved.problem.empty() ? Json() : Json(saved.problem)}});
  return all;
}

Json events_json(const RunHistory& history, int64_t seen) {
  Json all = Json::array();
  int64_t number = history.first_event();
  for (const RunEvent& event : history.events)
    if (number++ >= seen) all.push_back({{"step", event.step}, {"event", event.kind}, {"text", event.words}});
  return all;
}

Json parts_json(const std::vector<PartTime>& parts) {
  Json all = Json::object();
  for (const PartTime& part : parts) all[part.name] = part.ms;
  return all;
}

Json facts_json(const RunPicture& run) {
  Json starts = Json::array();
  for (const RunStart& start : run.starts) starts.push_back({{"time", start.time}, {"step", start.step}, {"ranks", start.ranks}});
  return {{"facts", rows_json(run.facts)},
          {"environment", rows_json(run.environment)},
          {"memory", rows_json(run.memory)},
          {"data", rows_json(run.data)},
          {"starts", starts},
          {"parts_ms", parts_json(run.history.parts)}};
}

// Position of the next answer: the same while curves wait for the end of a long file.
std::string next_of(const RunPicture& run, const SeenRun& seen, bool waits) {
  const int64_t step = waits ? seen.step : run.history.last.step, events = waits ? seen.events : run.history.all_events;
  return std::to_string(run.generation) + "/" + std::to_string(step) + "/" + std::to_string(events);
}

}  // namespace

SeenRun parse_seen(std::string_view words) {
  SeenRun seen;
  for (int64_t* field : {&seen.generation, &seen.step, &seen.events}) {
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), *field);
    const bool last = field == &seen.events;
    words.remove_prefix(static_cast<size_t>(end - words.data()));
    if (error != std::errc() || *field < 0 || (last ? !words.empty() : !words.starts_with('/'))) return {};
    if (!last) words.remove_prefix(1);
  }
  return seen;
}

std::string watch_json(const RunPicture& run, const SeenRun& seen) {
  const RunHistory& history = run.history;
  const bool known = seen.generation == run.generation, waits = known && run.more;
  const int64_t step = known ? seen.step : 0, events = known ? seen.events : 0;
  const int64_t all_steps = run.schedule.steps;
  Json answer{{"generation", run.generation},
              {"whole", !known},
              {"next", next_of(run, seen, waits)},
              {"more", run.more},
              {"read_bytes", run.read},
              {"file_bytes", run.size},
              {"name", run.title},
              {"directory", run.directory},
              {"state", name_of(run.state)},
              {"step", history.last.step},
              {"steps", all_steps > 0 ? Json(all_steps) : Json()},
              {"elapsed_seconds", run.elapsed()},
              {"eta_seconds", all_steps > 0 ? Json(run.eta()) : Json()},
              {"silent_seconds", run.silent()},
              {"now", run.now},
              {"goodput", number_or_null(run.goodput())},
              {"last", last_json(history)},
              {"exit", exit_json(run)},
              {"machine", machine_json(history.machine)},
              {"slowest", slowest_json(history.slowest)},
              {"checkpoints", checkpoints_json(run.checkpoints)},
              {"events", waits ? Json::array() : events_json(history, events)}};
  if (!waits) answer.update(facts_json(run));
  if (!known) answer["config"] = run.config;
  std::string json = answer.dump();
  json.pop_back();  // the closing brace
  if (waits) return json + ",\"curves\":{},\"busy\":null}";
  return json + ",\"curves\":" + curves_json(history, step) + ",\"busy\":" + busy_json(history.busy, step - kLateSteps) + "}";
}

}  // namespace trireme
