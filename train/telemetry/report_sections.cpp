#include "train/telemetry/report_sections.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/clock.h"
#include "base/number_format.h"

namespace trireme {
namespace {

using ReportRows = std::vector<std::vector<std::string>>;

constexpr size_t kMostIncidents = 200, kMostShards = 100;  // rows

std::string utc_words(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char buffer[40];
  return std::string(buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S UTC", &parts));
}

std::string counted_words(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

bool is_alive(const RunPicture& run) { return run.state == RunState::running || run.state == RunState::silent; }

ReportRows outcome_rows(const RunPicture& run) {
  ReportRows rows;
  const RunHistory& history = run.history;
  const bool ended = run.exit.time > 0 && !is_alive(run);  // exit.json may be of an earlier attempt
  if (!run.starts.empty()) {
    rows.push_back({"first start", utc_words(run.starts.front().time)});
    if (ended) rows.push_back({"end", utc_words(run.exit.time)});
    rows.push_back({"starts", std::to_string(run.starts.size())});
  }
  if (const double goodput = run.goodput(); std::isfinite(goodput))
    rows.push_back({"goodput", fixed(100 * goodput, 1) + "% of the time since the first start were steps"});
  rows.push_back({"time of steps", human_seconds(history.step_seconds)});
  rows.push_back({"time of evaluations", human_seconds(history.eval_seconds)});
  rows.push_back({"saves", counted_words(history.saves, "save") + ", steps waited " + human_seconds(history.save_stall)});
  const int64_t skipped = history.count("spike") + history.count("not_finite");
  rows.push_back({"steps without an update", std::to_string(skipped)});
  if (ended && run.exit.code > 0)
    rows.push_back({"end of the run", "code " + std::to_string(run.exit.code) + ", " + run.exit.cause +
                                          (run.exit.message.empty() ? "" : ": " + run.exit.message)});
  return rows;
}

ReportRows incident_rows(const RunPicture& run) {
  ReportRows rows;
  for (const RunEvent& event : run.history.events)
    if (event.kind != "save" && event.kind != "memory_save")
      rows.push_back({"step " + std::to_string(event.step), event.kind, event.words});
  std::ranges::stable_sort(rows, std::less(), [](const auto& row) { return std::stoll(row.front().substr(5)); });
  if (rows.size() > kMostIncidents) {
    const size_t more = rows.size() - kMostIncidents;
    rows.resize(kMostIncidents);
    rows.push_back({"and " + std::to_string(more) + " more"});
  }
  if (rows.empty()) rows.push_back({"none"});
  return rows;
}

ReportRows checkpoint_rows(const RunPicture& run) {
  ReportRows rows;
  for (const SavedState& saved : run.checkpoints)
    rows.push_back({"step " + std::to_string(saved.step), saved.time > 0 ? utc_words(saved.time) : "",
                    saved.problem.empty() ? human_bytes(static_cast<double>(saved.bytes)) : saved.problem});
  return rows;
}

ReportRows cost_rows(const MachineUse& use) {
  ReportRows rows;
  const auto row = [&](const char* name, double value, const std::string& text) {
    if (std::isfinite(value)) rows.push_back({name, text});
  };
  row("energy", use.kwh, significant(use.kwh, 4) + " kWh");
  row("energy of a token", use.joules_per_token, significant(use.joules_per_token, 3) + " J");
  row("CO2", use.co2_g, significant(use.co2_g / 1000, 3) + " kg");
  row("cost", use.cost, fixed(use.cost, 2) + " " + use.currency);
  row("cost of the whole run", use.projected_cost, fixed(use.projected_cost, 2) + " " + use.currency);
  return rows;
}

ReportRows fact_rows(const FactRows& facts) {
  ReportRows rows;
  for (const auto& [name, value] : facts) {
    if (rows.size() == kMostShards) {
      rows.push_back({"and " + std::to_string(facts.size() - kMostShards) + " more"});
      break;
    }
    rows.push_back({name, value});
  }
  return rows;
}

ReportRows memory_rows(const FactRows& memory) {
  ReportRows rows;
  for (const auto& [name, bytes] : memory) rows.push_back({name, human_bytes(std::stod(bytes))});
  return rows;
}

void add_curves(const RunPicture& run, ReportData& data) {
  const RunHistory& history = run.history;
  data.loss = history.curve("loss"), data.val_loss = history.curve("val_loss"), data.lr = history.curve("lr");
  data.bits_per_byte = history.curve("bits_per_byte"), data.grad_norm = history.curve("grad_norm");
  data.speed = history.curve("tokens_per_second"), data.mfu_curve = history.curve("mfu");
  for (const auto& [name, curve] : history.curves) {
    if (name.starts_with("choices/")) data.choices[name.substr(8)].accuracy = curve;
    if (name.starts_with("choices_norm/")) data.choices[name.substr(13)].normalised = curve;
  }
}

}  // namespace

ReportData report_of(const RunPicture& run) {
  const RunHistory& history = run.history;
  ReportData data;
  data.title = run.title, data.config = run.config, data.updated = utc_now();
  data.status = is_alive(run) ? RunStatus::running : run.state == RunState::finished ? RunStatus::finished : RunStatus::stopped;
  data.total_steps = run.schedule.steps, data.step = history.last.step, data.tokens = history.last.tokens;
  data.elapsed = run.elapsed(), data.eta = run.eta();
  data.mfu = history.last.mfu, data.tokens_per_second = history.last.tokens_per_second;
  data.best = history.best;
  data.parts = history.parts;
  data.handed_on = true;
  add_curves(run, data);
  const auto section = [&](const char* title, ReportRows rows) {
    if (!rows.empty()) data.sections.push_back({.title = title, .rows = std::move(rows)});
  };
  section("Outcome", outcome_rows(run));
  section("Incidents", incident_rows(run));
  section("Energy and cost", cost_rows(history.machine));
  section("Checkpoints", checkpoint_rows(run));
  section("Run", fact_rows(run.facts));
  section("Memory of the largest rank", memory_rows(run.memory));
  section("Environment", fact_rows(run.environment));
  section("Data", fact_rows(run.data));
  return data;
}

}  // namespace trireme
