// Fuzzes a checkpoint: a valid file of a rank under a manifest with a right digest and any content;
// or, if the bytes begin with 's', a valid manifest over a file with these bytes at some place.
#include <cstring>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "test/fuzz/fuzz.h"

using namespace trireme;

namespace {

struct Whole {
  std::string directory, manifest, file;
};

// A checkpoint of three tensors.
const Whole& whole() {
  static const Whole made = [] {
    std::vector<float> memory(64);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i) * 0.5f;
    const auto slice = [&](const char* name, Dtype dtype, int64_t rows, int64_t cols) {
      return TensorSlice{.name = name,
                         .global_shape = {rows, cols},
                         .offset = {0, 0},
                         .local = Tensor(memory.data(), dtype, Place::cpu, {rows, cols})};
    };
    const std::string run = fuzz::directory() + "/run";
    Checkpoints({}, run).save(
        3, {.slices = {slice("a", Dtype::f32, 3, 5), slice("b", Dtype::bf16, 2, 7), slice("c", Dtype::i32, 4, 4)},
            .counters = {{"tokens", 100}},
            .config = "train: {}"});
    const std::string directory = run + "/checkpoints/step-00000003";
    return Whole{.directory = directory,
                 .manifest = fuzz::read(directory + "/manifest.json"),
                 .file = fuzz::read(directory + "/shard-00000.h5")};
  }();
  return made;
}

void look_at(const std::string& directory) {
  try {
    verify_checkpoint(directory);
    const CheckpointReader reader(directory);
    for (const TensorEntry& tensor : reader.manifest().tensors) {
      int64_t bytes = bytes_of(tensor.dtype);
      for (const int64_t dim : tensor.shape) bytes *= dim;
      std::vector<std::byte> memory(static_cast<size_t>(bytes));
      if (tensor.shape.size() == 2)
        reader.read(tensor.name, Tensor(memory.data(), tensor.dtype, Place::cpu, {tensor.shape[0], tensor.shape[1]}));
    }
  } catch (const CheckpointError&) {
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(fuzz::words(data, size));
  const Whole& good = whole();
  if (bytes.starts_with('s') && bytes.size() > 3) {
    const size_t at = (static_cast<size_t>(data[1]) << 8 | data[2]) % good.file.size();
    std::string file = good.file;
    for (size_t i = 3; i < bytes.size() && at + i - 3 < file.size(); ++i) file[at + i - 3] = bytes[i];
    fuzz::write(good.directory + "/shard-00000.h5", file);
    fuzz::write(good.directory + "/manifest.json", good.manifest);
  } else {
    fuzz::write(good.directory + "/shard-00000.h5", good.file);
    fuzz::write(
        good.directory + "/manifest.json",
        "{\"digest\":\"" + hex(digest(bytes.data(), static_cast<int64_t>(bytes.size()))) + "\",\n\"manifest\":" + bytes + "}\n");
  }
  look_at(good.directory);
  return 0;
}
