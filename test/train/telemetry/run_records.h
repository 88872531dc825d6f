// Records of a made-up run, for the tests of what is written of it.
#pragma once

#include "base/json.h"
#include "test/train/telemetry/shown.h"
#include "train/telemetry/run_log.h"

namespace trireme {

inline StepRecord step_record(int64_t step, double loss = 2.5) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 0.75,
          .lr = 1e-3,
          .tokens = step * 1000,
          .step_ms = 12.5,
          .tokens_per_second = 80000,
          .data_ms = 0.1,
          .mfu = 0.4};
}

inline EvalRecord eval_record(int64_t step) {
  return {.step = step, .val_loss = 2.25, .bits_per_byte = 1.125, .val_tokens = 5000, .seconds = 0.5};
}

inline SaveRecord save_record(int64_t step) {
  return {.step = step,
          .bytes = 3 << 20,
          .seconds = 0.5,
          .write_seconds = 0.25,
          .stall_ms = 1.5,
          .run = "00000000000000000000000000000001",
          .scrubbed = 4096};
}

// metrics.jsonl without what is measured.
inline std::vector<Json> facts_of(const std::filesystem::path& path) {
  std::vector<Json> objects;
  for (const std::string& line : lines_of(read_text(path))) {
    Json object = Json::parse(line);
    for (const char* measured : {"step_ms", "data_ms", "tokens_per_second", "mfu", "seconds"}) object.erase(measured);
    objects.push_back(object);
  }
  return objects;
}

}  // namespace trireme
