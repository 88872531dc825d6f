// Traces of whole runs.
#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "test/catch.h"
#include "test/train/workplace.h"

using namespace trireme;

namespace {

struct Span {
  double begin, end;
};

// Microseconds that at least one of these covers within `within`.
double covered(std::vector<Span> spans, const Span& within) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double sum = 0, at = within.begin;
  for (const Span& span : spans) {
    const double begin = std::max(at, span.begin), end = std::min(span.end, within.end);
    if (end > begin) sum += end - begin, at = end;
  }
  return sum;
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

struct RankEvents {
  std::map<int64_t, Span> steps{};  // by number
  std::vector<Span> ops{}, all{};   // of the compute lane; `all`: also parts of a step
};

struct Arrows {
  std::map<std::string, std::vector<double>> starts{}, ends{};
};

double number_of(const Json& event, const char* key) { return event[key].get<double>(); }

std::map<int64_t, RankEvents> events_of(const Json& trace, Arrows& arrows) {
  std::map<int64_t, RankEvents> ranks;
  const std::set<std::string> parts{"forward", "backward", "optimizer", "data"};
  for (const Json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"], name = event["name"];
    if (kind == "s") arrows.starts[event["id"]].push_back(number_of(event, "ts"));
    if (kind == "f") arrows.ends[event["id"]].push_back(number_of(event, "ts"));
    if (kind != "X" || event["tid"] != 0) continue;
    RankEvents& rank = ranks[event["pid"].get<int64_t>()];
    const double begin = number_of(event, "ts");
    const Span span{begin, begin + number_of(event, "dur")};
    if (name == "step") {
      rank.steps[event["args"]["number"].get<int64_t>()] = span;
    } else {
      rank.all.push_back(span);
      if (!parts.contains(name)) rank.ops.push_back(span);
    }
  }
  return ranks;
}

std::map<int64_t, double> step_times(const Workplace& place, const std::string& run) {
  std::map<int64_t, double> times;
  std::istringstream in(place.run(run, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (const Json record = Json::parse(line); record.contains("loss"))
      times[record["step"].get<int64_t>()] = record["step_ms"].get<double>();
  return times;
}

const std::vector<std::string> kLarger{"model.width=128", "model.layers=4", "model.context=128", "train.microbatch=1",
                                       "train.eval_every=0"};

std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

}  // namespace

TEST_CASE("a trace has the ops of all ranks and lanes in their steps, and joins sends with receives", "[unsanitized]") {
  const Workplace place;
  succeed(place.train(
      with(kLarger, {"train.name=mesh", "parallel.dp=2", "parallel.pp=2", "train.steps=60", "train.profile=[10-59]"}), 4));
  const Json trace = Json::parse(place.run("mesh", "trace-10-59.json"));
  Arrows arrows;
  const std::map<int64_t, RankEvents> ranks = events_of(trace, arrows);
  REQUIRE(ranks.size() == 4);
  const std::map<int64_t, double> times = step_times(place, "mesh");
  // Fractions of each rank's best step. Ranks on few cores lose them between two ops, on a busy machine in most steps; an op that
  // leaves no event is missing in each.
  std::vector<double> whole;
  for (const auto& [rank, events] : ranks) {
    REQUIRE(events.steps.size() == 50);
    double ops = 0, all = 0;
    for (const auto& [step, span] : events.steps) {
      const double time = span.end - span.begin;
      ops = std::max(ops, covered(events.ops, span) / time), all = std::max(all, covered(events.all, span) / time);
      if (rank == 0) whole.push_back(time / (1000 * times.at(step)));
    }
    CHECK(all > 0.98);
    CHECK(ops > 0.9);
  }
  CHECK(middle(whole) > 0.98);
  CHECK(middle(whole) < 1.02);
  CHECK(arrows.starts.size() > 20);
  CHECK(arrows.starts.size() == arrows.ends.size());
  for (const auto& [id, starts] : arrows.starts) {
    INFO(id);
    REQUIRE(starts.size() == 1);
    REQUIRE(arrows.ends[id].size() == 1);
    CHECK(starts[0] <= arrows.ends[id][0]);
  }
  CHECK_THAT(place.run("mesh", "log.txt"), ContainsSubstring("trace-10-59.json: open it in https://ui.perfetto.dev"));
}

TEST_CASE("a trace changes no bit, and a file named control asks a running run for one") {
  const Workplace place;
  succeed(place.train({"train.name=plain"}));
  succeed(place.train({"train.name=traced", "train.profile=[1-3, 7]"}));
  CHECK(place.differ("plain", "traced") == 0);
  for (const std::string file : {"trace-1-3.json", "trace-7-7.json"}) CHECK(Json::parse(place.run("traced", file)).is_object());

  Process process(place.scratch.path(), Workplace::arguments({"train.name=asked", "train.steps=1000000", "train.eval_every=0"}));
  while (process.running() && place.lines("asked") < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto says = [&](const std::string& request, const std::string& words) {
    write_text(place.scratch / "runs/asked/control", request);
    for (int i = 0; i < 2000 && process.running(); ++i) {
      if (place.run("asked", "log.txt").find(words) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  CHECK(says("profile 3\n", "open it in https://ui.perfetto.dev"));
  CHECK(says("dance\n", "control must be 'profile N', N from 1 to 1000"));
  process.signal(SIGTERM);
  CHECK(process.wait().code == 75);
}
