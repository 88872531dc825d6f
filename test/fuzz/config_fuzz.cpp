// Fuzzes the YAML of a config. What is accepted means the same once written and read again.
#include "test/fuzz/fuzz.h"
#include "train/config/config.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const RunConfig config = parse_config("fuzz", std::string(fuzz::words(data, size)));
    const std::string yaml = to_yaml(config);
    fuzz::must_hold(to_yaml(parse_config("fuzz", yaml)) == yaml, "a config that was written reads back");
  } catch (const ConfigError&) {
  }
  return 0;
}
