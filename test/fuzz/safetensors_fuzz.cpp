// Fuzzes a safetensors file: the bytes are the header, eight bytes of data follow it.
#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(size) >> (8 * i));
  bytes += fuzz::words(data, size);
  bytes.append(8, 'x');
  const std::string path = fuzz::directory() + "/x.safetensors";
  fuzz::write(path, bytes);
  try {
    const SafetensorsFile file(path);
    int64_t sum = 0;
    for (const auto& [name, tensor] : file.tensors()) sum += tensor.bytes;
    fuzz::must_hold(sum == 8, "tensors cover the data");
  } catch (const DataError&) {
  }
  return 0;
}
