#include "train/run/known_progress.h"

#include "base/error.h"
#include "base/file.h"
#include "base/file_lines.h"
#include "base/json.h"
#include "train/run/data_record.h"

namespace trireme {
namespace {

int64_t integer_in(const Json& object, const char* name) {
  const Json* const value = object.find(name);
  return value != nullptr && value->is_integer() ? value->get<int64_t>() : 0;
}

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
      if (object.is_object() && object.value("tier", "") == "disk") learn(known, integer_in(object, "step"), metrics);
    }
  } catch (const DataError&) {
    // Metrics that are missing or no lines say nothing.
  }
  const Json exit = Json::parse_or_null(text_of_file(ended));
  const int64_t code = exit.is_object() && exit.contains("code") ? integer_in(exit, "code") : -1;
  const bool saved = code == static_cast<int64_t>(ExitCode::done) || code == static_cast<int64_t>(ExitCode::stopped);
  if (saved) learn(known, integer_in(exit, "step"), ended);
  try {
    for (const DataRecord& record : recorded_data(run_directory)) learn(known, record.after_step, record_path(run_directory));
  } catch (const std::exception&) {
    // A damaged record says nothing here; it is reported where it is used.
  }
  return known;
}

std::string missing_checkpoints(const std::string& run_directory, const KnownProgress& known) {
  return text(run_directory, "/checkpoints holds no checkpoint, but step ", known.step, " was on disk, says ", known.source,
              ": mount or restore the directory. --resume never starts again from step 0, another train.name starts another run");
}

}  // namespace trireme
