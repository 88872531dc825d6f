// Fuzzes the config.json of a published model.
#include "base/error.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"
#include "train/hub/published_config.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = fuzz::directory() + "/config.json";
  fuzz::write(path, fuzz::words(data, size));
  try {
    const ModelConfig model = read_published_config(path);
    fuzz::must_hold(model.layers > 0 && model.width > 0, "an accepted model has layers");
  } catch (const Error& error) {
    fuzz::must_hold(error.code() == ExitCode::data || error.code() == ExitCode::usage, "a refusal is of the file");
  }
  return 0;
}
