// Graphs of the stand-in for cuDNN: tensors and operations, checked and computed in double.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace standin {

struct Tensor {
  int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  int64_t alignment = 1;
  bool inner = false, by_value = false;

  int64_t elements() const;  // of the memory that it reaches into
  int64_t bytes() const;
};

// y = kind(a, b, t), by `mode` where the kind has several.
struct Operation {
  enum class Kind { matmul, pointwise, reduction, reshape } kind;
  int mode = 0;
  int64_t axis = -1;
  Tensor a, b, t, y;
  bool has_b = false, has_t = false;
};

// Names the first mistake, "" for none.
std::string problem(const Tensor& tensor);
std::string problem(const Operation& operation);
std::string problem(const std::vector<Operation>& graph);

// Tensors that a plan runs with, by uid.
std::map<int64_t, Tensor> outer_tensors(const std::vector<Operation>& graph);
// Bytes that cuDNN 9.19 asks for such a graph on an H100: of a backward, a bf16 matrix of scores and
// one tensor for each sum over heads; of a forward, only if it `keeps_scores`.
int64_t workspace_of(const std::vector<Operation>& graph, bool keeps_scores);
// True if scores are computed twice over, as in a backward.
bool is_backward(const std::vector<Operation>& graph);

// Computes the graph. Every outer tensor has an address.
void compute(const std::vector<Operation>& graph, const std::map<int64_t, void*>& addresses);

}  // namespace standin
