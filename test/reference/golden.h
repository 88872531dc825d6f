// Goldens of scripts/make_golden.py: a safetensors file whose metadata holds its config.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/config.h"

namespace trireme {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // f32 tensors
  std::vector<int32_t> ids;   // i32 tensors
};

struct Golden {
  ModelConfig model;                        // resolved
  std::map<std::string, double> optimizer;  // lr, beta1, beta2, eps, decay, clip
  std::map<std::string, GoldenTensor> tensors;

  const GoldenTensor& operator[](const std::string& name) const;
};

// Reads test/model/goldens/NAME.safetensors below `source`. Throws std::runtime_error if it is
// malformed.
Golden read_golden(const std::string& source, const std::string& name);

// max |a - b| / max |b|: the error against the scale of the tensor.
double relative_error(const std::vector<float>& values, const std::vector<float>& truth);

}  // namespace trireme
