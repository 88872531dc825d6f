// A run as JSON for the page of `trireme watch`; docs/json.md lists the names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/telemetry/run_picture.h"

namespace trireme {

// Position of a page in a run. Its next answer holds what is newer.
struct SeenRun {
  int64_t generation = -1, step = 0, events = 0;
};

// "GENERATION/STEP/EVENTS", the member `next` of an answer; anything else: nothing is seen.
SeenRun parse_seen(std::string_view words);

// The whole run for a page that has seen nothing of this generation. While a long metrics.jsonl is read, only the first answer has
// curves and facts, of what was read by then.
std::string watch_json(const RunPicture& run, const SeenRun& seen);

}  // namespace trireme
