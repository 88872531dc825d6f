// Fuzzes manifest.json: the bytes as they are, or, if they begin with 'f', as the body after a
// right digest. What is accepted reads back.
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(fuzz::words(data, size));
  if (text.starts_with('f')) {
    text.erase(0, 1);
    text = "{\"digest\":\"" + hex(digest(text.data(), static_cast<int64_t>(text.size()))) + "\",\n\"manifest\":" + text + "}\n";
  }
  try {
    const std::string written = write_manifest(parse_manifest(text));
    fuzz::must_hold(write_manifest(parse_manifest(written)) == written, "a manifest that was written reads back");
  } catch (const CheckpointError&) {
  }
  return 0;
}
