// Source of the rules: the cuDNN documentation, "Graph API", and its backend descriptor types.
#include "test/emulation/standins/cudnn_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "kernels/tensor.h"

namespace standin {
namespace {

using Values = std::vector<double>;

int64_t bytes_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

std::string sizes(const Tensor& t) {
  std::string words = "tensor " + std::to_string(t.uid) + " [";
  for (size_t i = 0; i < t.dims.size(); ++i) words += (i > 0 ? ", " : "") + std::to_string(t.dims[i]);
  return words + "]";
}

// Calls f(index) for each index of the dims, the last one fastest.
void for_each_index(const std::vector<int64_t>& dims, const std::function<void(const std::vector<int64_t>&)>& f) {
  std::vector<int64_t> index(dims.size(), 0);
  for (;;) {
    f(index);
    size_t axis = dims.size();
    while (axis > 0 && ++index[axis - 1] == dims[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

// The place of an element; a dim of which t has a divisor is shared by neighbours.
int64_t place(const Tensor& t, const std::vector<int64_t>& index, const std::vector<int64_t>& dims) {
  int64_t at = 0;
  for (size_t i = 0; i < dims.size(); ++i) at += (index[i] / (dims[i] / t.dims[i])) * t.strides[i];
  return at;
}

bool divides(const Tensor& part, const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (part.dims[i] == 0 || dims[i] % part.dims[i] != 0) return false;
  return true;
}

double rounded(double x, cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return static_cast<float>(trireme::Bf16(static_cast<float>(x)));
    case CUDNN_DATA_FLOAT:
      return static_cast<float>(x);
    default:
      return x;
  }
}

double read(const void* from, cudnnDataType_t type, int64_t at) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return static_cast<float>(static_cast<const trireme::Bf16*>(from)[at]);
    case CUDNN_DATA_INT32:
      return static_cast<const int32_t*>(from)[at];
    default:
      return static_cast<const float*>(from)[at];
  }
}
void write(void* to, cudnnDataType_t type, int64_t at, double value) {
  if (type == CUDNN_DATA_BFLOAT16)
    static_cast<trireme::Bf16*>(to)[at] = trireme::Bf16(static_cast<float>(value));
  else
    static_cast<float*>(to)[at] = static_cast<float>(value);
}

double pointwise(int mode, double x, double b, double t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b ? 1 : 0;
    default:
      return t != 0 ? x : b;  // BINARY_SELECT
  }
}

// Memory of a graph's tensors while it is computed.
class Memory {
 public:
  Memory(const std::vector<Operation>& graph, const std::map<int64_t, void*>& addresses) {
    for (const Operation& o : graph)
      for (const Tensor* t : {&o.a, &o.b, &o.t, &o.y}) {
        if (t->dims.empty() || values_.contains(t->uid)) continue;
        Values& values = values_[t->uid];
        values.resize(static_cast<size_t>(t->elements()));
        if (!t->inner)
          for (int64_t i = 0; i < t->elements(); ++i) values[static_cast<size_t>(i)] = read(addresses.at(t->uid), t->type, i);
      }
  }
  Values& operator[](const Tensor& t) { return values_.at(t.uid); }

 private:
  std::map<int64_t, Values> values_;
};

void matmul(const Operation& o, Memory& memory) {
  const Values &a = memory[o.a], &b = memory[o.b];
  Values& y = memory[o.y];
  const std::vector<int64_t>& dims = o.y.dims;
  const int64_t k = o.a.dims[3], step_a = o.a.strides[3], step_b = o.b.strides[2];
  for_each_index(dims, [&](const std::vector<int64_t>& i) {
    const auto outer = [&](const Tensor& t) {
      return i[0] / (dims[0] / t.dims[0]) * t.strides[0] + i[1] / (dims[1] / t.dims[1]) * t.strides[1];
    };
    const int64_t from_a = outer(o.a) + i[2] * o.a.strides[2], from_b = outer(o.b) + i[3] * o.b.strides[3];
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const double x = a[static_cast<size_t>(from_a + j * step_a)];
      if (x != 0) sum += x * b[static_cast<size_t>(from_b + j * step_b)];
    }
    y[static_cast<size_t>(place(o.y, i, dims))] = rounded(sum, o.y.type);
  });
}

void map(const Operation& o, Memory& memory) {
  Values& y = memory[o.y];
  for_each_index(o.y.dims, [&](const std::vector<int64_t>& i) {
    const auto value = [&](const Tensor& t) { return memory[t][static_cast<size_t>(place(t, i, o.y.dims))]; };
    const double x = o.mode == CUDNN_POINTWISE_GEN_INDEX
                         ? static_cast<double>(i[static_cast<size_t>(o.axis)])
                         : pointwise(o.mode, value(o.a), o.has_b ? value(o.b) : 0, o.has_t ? value(o.t) : 0);
    y[static_cast<size_t>(place(o.y, i, o.y.dims))] = rounded(x, o.y.type);
  });
}

void reduce(const Operation& o, Memory& memory) {
  const bool most = o.mode == CUDNN_REDUCE_TENSOR_MAX;
  std::map<int64_t, double> results;
  for_each_index(o.a.dims, [&](const std::vector<int64_t>& i) {
    const double x = memory[o.a][static_cast<size_t>(place(o.a, i, o.a.dims))];
    const int64_t to = place(o.y, i, o.a.dims);
    const auto [at, first] = results.emplace(to, x);
    if (!first) at->second = most ? std::max(at->second, x) : at->second + x;
  });
  for (const auto& [at, x] : results) memory[o.y][static_cast<size_t>(at)] = rounded(x, o.y.type);
}

// The same memory under other dims and strides, in y's type.
void reshape(const Operation& o, Memory& memory) {
  std::transform(memory[o.a].begin(), memory[o.a].end(), memory[o.y].begin(), [&](double x) { return rounded(x, o.y.type); });
}

std::string matmul_problem(const Operation& o) {
  const auto &a = o.a.dims, &b = o.b.dims, &y = o.y.dims;
  if (a[2] != y[2] || b[3] != y[3] || a[3] != b[2])
    return "a product of " + sizes(o.a) + " and " + sizes(o.b) + " is not " + sizes(o.y);
  for (size_t i = 0; i < 2; ++i)
    if (y[i] % a[i] != 0 || y[i] % b[i] != 0) return "heads of a product that do not divide those of " + sizes(o.y);
  return "";
}

std::string pointwise_problem(const Operation& o) {
  const bool compares = o.mode == CUDNN_POINTWISE_CMP_GE || o.mode == CUDNN_POINTWISE_CMP_GT;
  if (compares != (o.y.type == CUDNN_DATA_BOOLEAN)) return "comparisons, and they alone, have boolean results";
  if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
    if (o.axis < 0 || o.axis >= std::ssize(o.y.dims)) return "an index without its axis";
    return o.y.type == CUDNN_DATA_INT32 ? "" : "an index that is not int32";
  }
  const bool alone = o.mode == CUDNN_POINTWISE_EXP || o.mode == CUDNN_POINTWISE_LOG,
             selects = o.mode == CUDNN_POINTWISE_BINARY_SELECT;
  if (alone == o.has_b) return alone ? "a second operand of a function of one" : "a second operand is missing";
  if (selects != o.has_t) return "a condition, and nothing else, is a third operand";
  if (selects && o.t.type != CUDNN_DATA_BOOLEAN) return "a condition that is not boolean";
  if (compares && o.a.type != o.b.type) return "a comparison of two types";
  for (const Tensor* t : {&o.a, &o.b, &o.t})
    if (!t->dims.empty() && !divides(*t, o.y.dims)) return sizes(*t) + " does not fit " + sizes(o.y);
  return "";
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1;
}
int64_t Tensor::bytes() const { return elements() * bytes_of(type); }

std::string problem(const Tensor& t) {
  if (t.dims.size() != t.strides.size() || t.dims.empty()) return "a tensor with " + std::to_string(t.strides.size()) + " strides";
  for (size_t i = 0; i < t.dims.size(); ++i)
    if (t.dims[i] < 1 || t.strides[i] < 1) return sizes(t) + " with a dim or stride below 1";
  if (t.by_value && (t.elements() != 1 || t.inner)) return sizes(t) + " by value";
  if (t.alignment < bytes_of(t.type) || (t.alignment & (t.alignment - 1)) != 0)
    return sizes(t) + " at a multiple of " + std::to_string(t.alignment) + " bytes";
  return "";
}

std::string problem(const Operation& o) {
  for (const Tensor* t : {&o.a, &o.b, &o.t, &o.y})
    if (!t->dims.empty() && t->dims.size() != 4) return sizes(*t) + " has not four dims";
  if (o.y.by_value) return sizes(o.y) + " is a result by value";
  switch (o.kind) {
    case Operation::Kind::matmul:
      return matmul_problem(o);
    case Operation::Kind::pointwise:
      return pointwise_problem(o);
    case Operation::Kind::reduction:
      return divides(o.y, o.a.dims) ? "" : "sums of " + sizes(o.a) + " are not " + sizes(o.y);
    default:
      return o.a.elements() == o.y.elements() ? "" : sizes(o.y) + " has not the elements of " + sizes(o.a);
  }
}

std::string problem(const std::vector<Operation>& graph) {
  std::set<int64_t> written, read;
  std::map<int64_t, Tensor> known;
  for (const Operation& o : graph) {
    for (const Tensor* t : {&o.a, &o.b, &o.t}) {
      if (t->dims.empty()) continue;
      read.insert(t->uid);
      if (t->inner && !written.contains(t->uid)) return sizes(*t) + " is read before an operation writes it";
    }
    if (!written.insert(o.y.uid).second) return sizes(o.y) + " is written twice";
    for (const Tensor* t : {&o.a, &o.b, &o.t, &o.y}) {
      if (t->dims.empty()) continue;
      const auto [at, first] = known.emplace(t->uid, *t);
      if (first) continue;
      // The same memory may be seen transposed.
      if (at->second.inner != t->inner || at->second.type != t->type || at->second.elements() != t->elements())
        return sizes(*t) + " has the id of another tensor";
    }
  }
  for (const auto& [uid, t] : known)
    if (t.inner && !read.contains(uid)) return sizes(t) + " is inner and never read";
  return "";
}

std::map<int64_t, Tensor> outer_tensors(const std::vector<Operation>& graph) {
  std::map<int64_t, Tensor> outer;
  for (const Operation& o : graph)
    for (const Tensor* t : {&o.a, &o.b, &o.t, &o.y})
      if (!t->dims.empty() && !t->inner) outer.emplace(t->uid, *t);
  return outer;
}

bool is_backward(const std::vector<Operation>& graph) {
  return std::count_if(graph.begin(), graph.end(), [](const Operation& o) { return o.kind == Operation::Kind::matmul; }) > 2;
}

int64_t workspace_of(const std::vector<Operation>& graph, bool keeps_scores) {
  if (!is_backward(graph) && !keeps_scores) return 0;
  int64_t bytes = 0, square = 0;
  for (const Operation& o : graph) {
    if (o.kind == Operation::Kind::matmul && o.y.inner && o.y.dims[2] == o.y.dims[3]) square = std::max(square, o.y.elements() * 2);
    if (o.kind == Operation::Kind::reduction && o.y.dims[1] != o.a.dims[1]) bytes += o.a.elements() * 2;
  }
  return bytes + square;
}

void compute(const std::vector<Operation>& graph, const std::map<int64_t, void*>& addresses) {
  Memory memory(graph, addresses);
  for (const Operation& o : graph) switch (o.kind) {
      case Operation::Kind::matmul:
        matmul(o, memory);
        break;
      case Operation::Kind::pointwise:
        map(o, memory);
        break;
      case Operation::Kind::reduction:
        reduce(o, memory);
        break;
      default:
        reshape(o, memory);
    }
  for (const Operation& o : graph) {
    if (o.y.inner) continue;
    // Only what is the tensor's: between its elements may lie others'.
    for_each_index(o.y.dims, [&](const std::vector<int64_t>& i) {
      const int64_t at = place(o.y, i, o.y.dims);
      write(addresses.at(o.y.uid), o.y.type, at, memory[o.y][static_cast<size_t>(at)]);
    });
  }
}

}  // namespace standin
