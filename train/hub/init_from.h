// A run's first weights from published ones (train.init_from): a directory of Hugging Face with config.json and safetensors.
#pragma once

#include <functional>
#include <vector>

#include "parallel/comm.h"
#include "parallel/tensor_slice.h"
#include "train/config/config.h"

namespace trireme {

// Fills the masters among `slices`, which are f32 in host memory, each rank reading what it holds; moments are left as they are.
// Entries that the vocabulary has beyond the published one keep their fresh weights. ConfigError that names every key of model:
// that is not the published model's, DataError what is wrong with its files; on all ranks alike.
// `moved` is told each time that something was read.
void init_from(const RunConfig& config, const std::vector<TensorSlice>& slices, const Comm& ranks,
               const std::function<void()>& moved = nullptr);

}  // namespace trireme
