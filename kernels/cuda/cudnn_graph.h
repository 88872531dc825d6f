// cuDNN's graph API, as far as attention needs it: the library, opened on first use; its
// descriptors; a graph of tensors and operations.
#pragma once

#include <cudnn.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/shared_library.h"

namespace trireme {

struct Cudnn {
  static std::string name() { return "libcudnn.so." + std::to_string(CUDNN_MAJOR); }
  SharedLibrary library{name(), "kernels.attention = cudnn"};
  decltype(&cudnnGetVersion) get_version = library.find<decltype(cudnnGetVersion)>("cudnnGetVersion");
  decltype(&cudnnGetErrorString) get_error_string = library.find<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  decltype(&cudnnCreate) create = library.find<decltype(cudnnCreate)>("cudnnCreate");
  decltype(&cudnnSetStream) set_stream = library.find<decltype(cudnnSetStream)>("cudnnSetStream");
  decltype(&cudnnBackendCreateDescriptor) create_descriptor =
      library.find<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor");
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor =
      library.find<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor");
  decltype(&cudnnBackendSetAttribute) set_attribute = library.find<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
  decltype(&cudnnBackendGetAttribute) get_attribute = library.find<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute");
  decltype(&cudnnBackendFinalize) finalize = library.find<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
  decltype(&cudnnBackendExecute) execute = library.find<decltype(cudnnBackendExecute)>("cudnnBackendExecute");
};
inline const Cudnn& dnn() {
  static const Cudnn loaded;
  return loaded;
}

inline void ok(cudnnStatus_t status, std::source_location at = std::source_location::current()) {
  if (status != CUDNN_STATUS_SUCCESS) throw Error(std::string("cuDNN: ") + dnn().get_error_string(status), at);
}

// A descriptor, in cuDNN's terms: a set of attributes, fixed by finish().
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    ok(dnn().create_descriptor(type, &made));
    handle_.reset(made);
  }
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values, size_t count) const {
    ok(dnn().set_attribute(get(), name, type, static_cast<int64_t>(count), values));
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) const {
    set(name, type, &value, 1);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) const {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  void finish() const { ok(dnn().finalize(get())); }

 private:
  struct Destroyer {
    void operator()(void* handle) const { dnn().destroy_descriptor(handle); }
  };
  std::unique_ptr<void, Destroyer> handle_;
};

using Four = std::array<int64_t, 4>;
struct Layout {
  Four dims, strides;
  Layout transposed() const {
    Layout other = *this;
    std::swap(other.dims[2], other.dims[3]), std::swap(other.strides[2], other.strides[3]);
    return other;
  }
};
inline Layout dense(Four dims) { return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}}; }
// A tensor of a graph.
struct Value {
  const Descriptor* descriptor = nullptr;
  Layout layout{};
};

// A graph under construction, which owns all of its descriptors. The caller chooses ids below
// kFirstInner for outer tensors and scalars.
class CudnnGraph {
 public:
  static constexpr int64_t kFirstInner = 100;
  Value outer(int64_t uid, cudnnDataType_t type, const Layout& layout) { return tensor(uid, type, layout, false, false); }
  Value number(int64_t uid, cudnnDataType_t type) { return tensor(uid, type, dense({1, 1, 1, 1}), false, true); }
  Value inner(cudnnDataType_t type, const Layout& layout) { return tensor(next_++, type, layout, true, false); }

  void matmul(const Value& c, const Value& a, const Value& b) {
    const Descriptor& how = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finish();
    operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_DESC, &how},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor},
                                                          {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor}});
  }
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT;
    std::optional<int64_t> axis{};  // for an index
  };
  // y = mode(x[, b[, t]]); with BINARY_SELECT, t chooses between x and b.
  void pointwise(const Pointwise& p, const Value& y, const Value& x, const Value& b = {}, const Value& t = {}) {
    const Descriptor& how = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, p.mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p.arithmetic);
    if (p.axis) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *p.axis);
    how.finish();
    operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &how},
                                                             {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor},
                                                             {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.descriptor},
                                                             {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t.descriptor},
                                                             {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor}});
  }
  // Reduces along the dims in which y has size 1 or divides x.
  void reduce(cudnnReduceTensorOp_t how_to, const Value& y, const Value& x) {
    const Descriptor& how = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how_to);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finish();
    operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, &how},
                                                             {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor},
                                                             {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor}});
  }
  Value transpose(const Value& x, cudnnDataType_t type) {
    const Value y = inner(type, x.layout.transposed());
    operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor}});
    return y;
  }
  // mode(x, b) in f32, with the dims of x.
  Value f32(cudnnPointwiseMode_t mode, const Value& x, const Value& b = {}) {
    const Value y = inner(CUDNN_DATA_FLOAT, dense(x.layout.dims));
    pointwise({mode}, y, x, b);
    return y;
  }

  const Descriptor& finish() {
    const Descriptor& all = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    all.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(), operations_.size());
    all.finish();
    return all;
  }

 private:
  const Descriptor& add(cudnnBackendDescriptorType_t type) { return *parts_.emplace_back(std::make_unique<Descriptor>(type)); }

  Value tensor(int64_t uid, cudnnDataType_t type, const Layout& layout, bool is_inner, bool by_value) {
    const Descriptor& d = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.dims.data(), layout.dims.size());
    d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.strides.data(), layout.strides.size());
    d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_inner);
    d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    d.finish();
    return {&d, layout};
  }

  struct Operand {
    cudnnBackendAttributeName_t name;
    const Descriptor* descriptor;  // nullptr: none
  };
  void operation(cudnnBackendDescriptorType_t type, std::initializer_list<Operand> operands) {
    const Descriptor& d = add(type);
    for (const Operand& o : operands)
      if (o.descriptor != nullptr) d.set(o.name, *o.descriptor);
    d.finish();
    operations_.push_back(d.get());
  }

  std::vector<std::unique_ptr<Descriptor>> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_ = kFirstInner;
};

}  // namespace trireme
