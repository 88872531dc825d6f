#include "train/run/known_progress.h"

#include "base/error.h"
#include "base/file.h"
#include "base/file_lines.h"
#include "base/json.h"
#include "checkpoint/lineage.h"
#include "train/run/data_record.h"

namespace trireme {
namespace {

void learn(KnownProgress& known, int64_t step, const std::string& source) {
  if (step > known.step) known = {.step = step, .source = source};
}

}  // namespace

KnownProgress known_progress(const std::string& run_directory) {
  KnownProgress known;
  const std::string metrics = run_directory + "/metrics.jsonl", ended = run_directory + "/exit.json";
  try {
    FileLines lines(metrics);
    for (std::string line; lines.next(line);) {
      if (line.find("saved_bytes") == std::string::npos) continue;
      const Json object = Json::parse_or_null(line);
      if (object.is_object() && object.value("tier", "") == "disk") learn(known, object.integer_or("step", 0), metrics);
    }
  } catch (const DataError&) {
    // Metrics that are missing or no lines say nothing.
  }
  const Json exit = Json::parse_or_null(text_of_file(ended));
  const int64_t code = exit.integer_or("code", -1);
  const bool saved = code == static_cast<int64_t>(ExitCode::done) || code == static_cast<int64_t>(ExitCode::stopped);
  if (saved) learn(known, exit.integer_or("step", 0), ended);
  try {
    for (const DataRecord& record : recorded_data(run_directory)) learn(known, record.after_step, record_path(run_directory));
  } catch (const std::exception&) {
    // A damaged record says nothing here; it is reported where it is used.
  }
  return known;
}

std::string missing_checkpoints(const std::string& run_directory, const KnownProgress& known) {
  return text(run_directory, "/checkpoints holds no checkpoint, but step ", known.step, " was on disk, says ", known.source,
              kMissingRemedy);
}

}  // namespace trireme
