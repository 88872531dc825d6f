// Fuzzes the records of a run, line by line: its commits if the bytes begin with an 'l', its data if
// they begin with a 'd', else its metrics. Metrics that a resume has kept are kept again as they are, and are shown in bounds.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/lineage.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"
#include "train/run/data_record.h"
#include "train/run/known_progress.h"
#include "train/telemetry/metrics.h"
#include "train/telemetry/run_history.h"

using namespace trireme;

namespace {

std::string kept_steps(const std::string& directory) {
  std::string steps;
  const MetricsFile file(directory, 40,
                         {.step = [&](const StepRecord& record) { steps += std::to_string(record.step) + " "; },
                          .eval = [&](const EvalRecord& record) { steps += "e" + std::to_string(record.step) + " "; }});
  return steps;
}

// Reads them as `watch` and `report` do; what those keep is bounded.
void show(std::string_view text) {
  RunHistory history;
  int64_t lines = 0;
  for (size_t begin = 0; begin <= text.size(); ++lines) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    history.add(text.substr(begin, end - begin));
    begin = end + 1;
  }
  fuzz::must_hold(history.all_events <= lines && history.events.size() <= RunHistory::kMostEvents, "a line is one event");
  for (const auto& [name, curve] : history.curves)
    fuzz::must_hold(std::ssize(curve.bins()) <= RunHistory::kFineBins, "a curve is short");
  fuzz::must_hold(std::ssize(history.busy.columns()) <= BusyMap::kMostColumns, "a map is short");
}

void read_metrics(const std::string& directory, std::string_view text) {
  show(text);
  fuzz::write(directory + "/metrics.jsonl", text);
  known_progress(directory);
  const std::string steps = kept_steps(directory);
  const std::string kept = fuzz::read(directory + "/metrics.jsonl");
  fuzz::must_hold(kept_steps(directory) == steps, "what was kept is kept again");
  fuzz::must_hold(fuzz::read(directory + "/metrics.jsonl") == kept, "what was kept stays as it is");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view words = fuzz::words(data, size);
  const std::string directory = fuzz::directory();
  try {
    if (words.starts_with('l')) {
      fuzz::write(lineage_path(directory), words.substr(1));
      int64_t lines = 1;
      for (const char c : words) lines += c == '\n' ? 1 : 0;
      const LineageText found = read_lineage({}, lineage_path(directory));
      fuzz::must_hold(std::ssize(found.commits) <= lines, "a line is one commit");
    } else if (words.starts_with('d')) {
      fuzz::write(record_path(directory), words.substr(1));
      recorded_data(directory);
    } else {
      read_metrics(directory, words);
    }
  } catch (const CheckpointError&) {
  } catch (const DataError&) {
  }
  return 0;
}
