#include "train/telemetry/run_history.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/number_format.h"
#include "train/telemetry/json_members.h"

namespace trireme {
namespace {

constexpr double kLargestStep = 1e15;  // beyond it, a number is not taken for a step

using ViewedMembers = std::vector<std::pair<std::string_view, std::string_view>>;

std::string_view value_in(const ViewedMembers& members, std::string_view name) {
  for (const auto& [key, value] : members)
    if (key == name) return value;
  return {};
}

double number_in(const ViewedMembers& members, std::string_view name) { return number_of(value_in(members, name)); }

double json_number_in(const Json& json, const char* name) {
  const Json* const value = json.find(name);
  return value != nullptr && value->is_number() ? value->get<double>() : StepRecord::kUnknown;
}

std::string word_in(const Json& json, const char* name) {
  const Json* const value = json.find(name);
  return value != nullptr && value->is_string() ? value->string() : "";
}

RunEvent save_event(int64_t step, const Json& line) {
  const bool memory = word_in(line, "tier") == "memory";
  std::string words = memory ? "saved in memory" : "saved";
  const double bytes = json_number_in(line, "saved_bytes"), seconds = json_number_in(line, "saved_seconds");
  if (std::isfinite(bytes)) words += " " + human_bytes(bytes);
  if (std::isfinite(seconds)) words += " in " + human_seconds(seconds);
  if (const double stall = json_number_in(line, "save_stall_ms"); std::isfinite(stall))
    words += ", steps waited " + human_seconds(stall / 1000);
  return {.step = step, .kind = memory ? "memory_save" : "save", .words = words};
}

RunEvent other_event(int64_t step, const Json& line) {
  const std::string kind = word_in(line, "event");
  const int64_t since = line.integer_or("since", step);
  std::string words = word_in(line, "text");
  if (words.empty() && kind == "spike") words = "a spike: step without an update";
  if (words.empty() && kind == "not_finite") words = "loss or gradients not finite: step without an update";
  if (words.empty() && kind == "zero_gradients") words = "gradients are zero since step " + std::to_string(since);
  if (words.empty() && kind == "straggler") words = "a rank is slower than its peers";
  if (words.empty()) words = kind;
  if (kind == "straggler" && line.contains("rank")) {
    const std::string host = word_in(line, "host");
    words = "rank " + std::to_string(line.integer_or("rank", -1)) + (host.empty() ? "" : " (" + host + ")") + ": " + words;
  }
  return {.step = step, .kind = kind, .words = words};
}

}  // namespace

const DownsampledCurve& RunHistory::curve(std::string_view name) const {
  static const DownsampledCurve kNone;
  const auto found = curves.find(name);
  return found == curves.end() ? kNone : found->second;
}

DownsampledCurve& RunHistory::curve_to_fill(std::string_view name, int64_t bins) {
  const auto found = curves.find(name);
  return found != curves.end() ? found->second : curves.emplace(std::string(name), DownsampledCurve(bins)).first->second;
}

int64_t RunHistory::count(std::string_view kind) const {
  const auto found = counts_.find(kind);
  return found == counts_.end() ? 0 : found->second;
}

void RunHistory::add(RunEvent event) {
  ++counts_[event.kind];
  ++all_events;
  events.push_back(std::move(event));
  if (events.size() > kMostEvents) events.pop_front();
}

void RunHistory::add(std::string_view line) {
  members_.clear();
  JsonMembers read(line);
  while (read.next()) members_.emplace_back(read.name(), read.value());
  const double number = number_in(members_, "step");
  if (!read.whole() || !(number >= 0 && number < kLargestStep)) return;
  const auto step = static_cast<int64_t>(number);
  const auto has = [&](std::string_view name) { return !value_in(members_, name).empty(); };
  if (has("loss")) return add_step(step, members_);
  if (has("val_loss")) return add_eval(step, members_);
  for (const std::string_view name : {"choices", "event", "saved_bytes", "slowest_rank", "kwh", "cost", "power_w"})
    if (has(name)) return add_rare(step, line);
}

void RunHistory::add_step(int64_t step, const Members& members) {
  if (step < last.step) return;
  if (first_step == 0) first_step = step;
  const auto number = [&](std::string_view name) { return number_in(members, name); };
  last = {.step = step,
          .loss = number("loss"),
          .grad_norm = number("grad_norm"),
          .lr = number("lr"),
          .tokens = std::isfinite(number("tokens")) ? static_cast<int64_t>(number("tokens")) : 0,
          .step_ms = number("step_ms"),
          .tokens_per_second = number("tokens_per_second"),
          .data_ms = number("data_ms"),
          .mfu = number("mfu"),
          .mfu_full = number("mfu_full"),
          .hfu = number("hfu")};
  if (std::isfinite(last.step_ms)) step_seconds += last.step_ms / 1000;
  left.step(last.step_ms / 1000);
  curve_to_fill("loss", kFineBins).add(step, last.loss);
  curve_to_fill("grad_norm").add(step, last.grad_norm);
  curve_to_fill("lr").add(step, last.lr);
  curve_to_fill("tokens_per_second").add(step, last.tokens_per_second);
  curve_to_fill("step_ms").add(step, last.step_ms);
  curve_to_fill("data_ms").add(step, last.data_ms);
  if (std::isfinite(last.mfu)) curve_to_fill("mfu").add(step, last.mfu);
  if (const std::string_view times = value_in(members, "parts_ms"); !times.empty()) add_parts(step, times);
}

void RunHistory::add_parts(int64_t step, std::string_view times) {
  constexpr size_t kMostParts = 32;
  for (JsonMembers part(times); part.next();) {
    const double ms = number_of(part.value());
    auto sum = std::ranges::find(parts, part.name(), &PartTime::name);
    if (sum == parts.end()) {
      if (parts.size() == kMostParts) return;
      sum = parts.insert(parts.end(), PartTime{.name = std::string(part.name()), .ms = 0});
    }
    if (std::isfinite(ms)) sum->ms += ms;
    curve_to_fill("part/" + sum->name, kBins / 2).add(step, ms);
  }
}

void RunHistory::add_eval(int64_t step, const Members& members) {
  const auto number = [&](std::string_view name) { return number_in(members, name); };
  eval = {.step = step,
          .val_loss = number("val_loss"),
          .bits_per_byte = number("bits_per_byte"),
          .val_tokens = std::isfinite(number("val_tokens")) ? static_cast<int64_t>(number("val_tokens")) : 0,
          .seconds = number("seconds")};
  if (std::isfinite(eval.val_loss) && (best.step == 0 || eval.val_loss < best.val_loss)) best = eval;
  if (std::isfinite(eval.seconds)) eval_seconds += eval.seconds;
  left.evaluation(step, "", eval.seconds);
  curve_to_fill("val_loss").add(step, eval.val_loss);
  if (std::isfinite(eval.bits_per_byte)) curve_to_fill("bits_per_byte").add(step, eval.bits_per_byte);
}

void RunHistory::add_ranks(int64_t step, const Json& json) {
  const double rank = json_number_in(json, "slowest_rank");
  if (rank >= 0 && rank < kLargestStep)
    slowest = {.step = step, .rank = static_cast<int64_t>(rank), .ratio = json_number_in(json, "slowest_ratio")};
  std::vector<double> times;
  if (const Json* const busy_ms = json.find("busy_ms"); busy_ms != nullptr && busy_ms->is_array())
    for (const Json& time : *busy_ms) times.push_back(time.is_number() ? time.get<double>() : 0);
  busy.add(step, times);
}

// Lines of which there are few, read as JSON.
void RunHistory::add_rare(int64_t step, std::string_view line) {
  const Json json = Json::parse_or_null(line);
  if (!json.is_object()) return;
  if (const std::string name = word_in(json, "choices"); !name.empty()) {
    constexpr size_t kMostCurves = 256;
    const double seconds = json_number_in(json, "seconds");
    left.evaluation(step, name, seconds);
    if (std::isfinite(seconds)) eval_seconds += seconds;
    if (curves.size() > kMostCurves) return;
    curve_to_fill("choices/" + name).add(step, json_number_in(json, "acc"));
    curve_to_fill("choices_norm/" + name).add(step, json_number_in(json, "acc_norm"));
  } else if (!word_in(json, "event").empty()) {
    add(other_event(step, json));
  } else if (json.contains("saved_bytes")) {
    const double stall = json_number_in(json, "save_stall_ms") / 1000;
    if (std::isfinite(stall)) save_stall += stall;
    left.save(stall);
    ++saves;
    add(save_event(step, json));
  } else if (json.contains("slowest_rank")) {
    add_ranks(step, json);
  } else {
    machine = {.kwh = json_number_in(json, "kwh"),
               .joules_per_token = json_number_in(json, "joules_per_token"),
               .co2_g = json_number_in(json, "co2_g"),
               .cost = json_number_in(json, "cost"),
               .projected_cost = json_number_in(json, "projected_cost"),
               .power_w = json_number_in(json, "power_w"),
               .currency = word_in(json, "currency")};
    if (std::isfinite(machine.power_w)) curve_to_fill("power_w").add(step, machine.power_w);
  }
}

}  // namespace trireme
