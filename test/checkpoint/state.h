// Small states to save, and directories for them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/reader.h"
#include "test/data/scratch.h"

namespace trireme {

// Tensors that own their memory, in a CheckpointState.
class OwnedState {
 public:
  OwnedState() = default;
  OwnedState(OwnedState&&) = default;  // a move keeps the tensors in place; a copy's would point into the original

  // Adds a slice at `offset` of a tensor of `global` shape and returns it, filled with zeros.
  TensorSlice& add(const std::string& name, Dtype dtype, std::vector<int64_t> global, std::vector<int64_t> offset,
                   std::vector<int64_t> shape) {
    int64_t bytes = bytes_of(dtype);
    for (const int64_t dim : shape) bytes *= dim;
    void* data = memory_.emplace_back(static_cast<size_t>(bytes)).data();
    Tensor local;
    if (shape.size() == 1) local = Tensor(data, dtype, Place::cpu, {shape[0]});
    if (shape.size() == 2) local = Tensor(data, dtype, Place::cpu, {shape[0], shape[1]});
    if (shape.size() == 3) local = Tensor(data, dtype, Place::cpu, {shape[0], shape[1], shape[2]});
    if (shape.size() == 4) local = Tensor(data, dtype, Place::cpu, {shape[0], shape[1], shape[2], shape[3]});
    state.slices.push_back({.name = name, .global_shape = global, .offset = offset, .local = local});
    return state.slices.back();
  }
  TensorSlice& add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    return add(name, dtype, shape, std::vector<int64_t>(shape.size(), 0), shape);
  }
  // Sets every bit of every tensor from `seed`: also NaNs, infinities and subnormal numbers.
  void fill(uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (std::vector<std::byte>& bytes : memory_)
      for (std::byte& byte : bytes) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::byte>(x >> 56);
      }
  }
  // Strings compare with one memcmp; unoptimised vectors compare one element at a time.
  std::vector<std::string> bytes() const {
    std::vector<std::string> all;
    for (const std::vector<std::byte>& bytes : memory_) all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return all;
  }

  CheckpointState state;

 private:
  std::deque<std::vector<std::byte>> memory_;
};

// Weight, moment and bf16 tensors of a few elements, as of `step`.
inline OwnedState small_state(int64_t step) {
  OwnedState owned;
  owned.add("block.0.w", Dtype::f32, {3, 5});
  owned.add("adam_m/block.0.w", Dtype::f32, {3, 5});
  owned.add("head", Dtype::bf16, {7});
  owned.fill(static_cast<uint64_t>(step) + 1);
  owned.state.counters = {{"tokens", 100 * step}, {"seed", 1}};
  owned.state.config = "train:\n  steps: 10\n";
  return owned;
}

// A directory in memory if the system offers one: for tests of many states, in which syncs need not
// be real.
inline std::filesystem::path quick_directory() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

inline std::string step_path(const std::string& run, int64_t step) {
  std::string digits = std::to_string(step);
  return run + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
}

inline std::vector<int64_t> steps_left(const std::string& run) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(run)) steps.push_back(info.step);
  return steps;
}

// The entry of a checkpoint's file, with its pieces.
inline FileEntry known_file(const std::string& checkpoint, int64_t index = 0) {
  const Io io;
  RankFiles files(io, checkpoint, load_manifest(io, checkpoint));
  return files.known(index);
}
// Byte of a tensor's first piece in that file.
inline int64_t byte_of(const std::string& checkpoint, const std::string& tensor) {
  const int64_t wanted = index_of(load_manifest(Io(), checkpoint), tensor);
  for (const Piece& piece : known_file(checkpoint).pieces)
    if (piece.tensor == wanted) return piece.at;
  return -1;
}

inline CheckpointConfig keeping(int64_t keep) { return {.every = 1, .keep = keep}; }

// Saves small states of these steps.
inline void save_steps(const std::string& run, const std::vector<int64_t>& steps, int64_t keep = 3) {
  Checkpoints checkpoints(keeping(keep), run);
  for (const int64_t step : steps) checkpoints.save(step, small_state(step).state);
}

}  // namespace trireme
