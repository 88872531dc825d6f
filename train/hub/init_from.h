// Initial weights from a published model (train.init_from): a Hugging Face directory with config.json and safetensors.
#pragma once

#include <functional>
#include <vector>

#include "parallel/comm.h"
#include "parallel/tensor_slice.h"
#include "train/config/config.h"

namespace trireme {

// Fills the masters among `slices`, f32 in host memory; each rank reads what it holds. Moments are left as they are. Rows of a
// vocabulary beyond the published one keep their fresh weights. ConfigError names every key of model: that differs from the
// published model; DataError names what is wrong with its files. All ranks throw the same. `moved` is called after each read.
void init_from(const RunConfig& config, const std::vector<TensorSlice>& slices, const Comm& ranks,
               const std::function<void()>& moved = nullptr);

}  // namespace trireme
