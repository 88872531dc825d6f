// Mesh, device and views of a batch's ids, for tests of optimizer steps.
#pragma once

#include <vector>

#include "kernels/tensor.h"
#include "parallel/mesh.h"
#include "test/reference/place.h"
#include "train/config/config.h"

namespace trireme {

inline const Mesh kOneRank;

inline DeviceChoice tested_device() { return tested_place() == Place::cpu ? DeviceChoice::cpu : DeviceChoice::cuda; }

// Views ids as a matrix of so many rows.
inline Tensor ids_of(std::vector<int32_t>& values, int64_t rows) {
  return Tensor(values.data(), Dtype::i32, Place::cpu, {rows, static_cast<int64_t>(values.size()) / rows});
}

}  // namespace trireme
