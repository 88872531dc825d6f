// Helpers of the op tests: tensors that own their memory, comparison with a double reference,
// finite differences, thread counts.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "kernels/tensor.h"
#include "test/reference/place.h"

namespace trireme {

using Doubles = std::vector<double>;

// A tensor on the tested place that owns exactly its memory, so that a sanitizer detects overruns.
// The host can access it. Copies are deep. It converts to a Tensor: Fill{.x = x}.
class HostTensor {
 public:
  HostTensor(Dtype dtype, std::initializer_list<int64_t> shape);                         // zeros
  HostTensor(Dtype dtype, std::initializer_list<int64_t> shape, const Doubles& values);  // rounded to the dtype

  HostTensor(const HostTensor& other);
  HostTensor(HostTensor&& other) noexcept;
  HostTensor& operator=(HostTensor other);
  ~HostTensor();

  operator Tensor() const;
  Tensor tensor() const { return *this; }
  Dtype dtype() const { return dtype_; }
  int64_t size() const;
  Doubles values() const;
  double operator[](int64_t i) const;
  void set(int64_t i, double value);
  bool operator==(const HostTensor& other) const;  // the same shape, dtype and bits

 private:
  // Elements, once what computes them has ended.
  double get(int64_t i) const;
  void put(int64_t i, double value);
  template <class T>
  T& element(int64_t i) const;

  Dtype dtype_;
  std::vector<int64_t> shape_;
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Random tensors, a pure function of `key`: stddev * normal; integers in [begin, end).
HostTensor random_tensor(Dtype dtype, std::initializer_list<int64_t> shape, uint64_t key, double stddev = 1);
HostTensor random_integers(std::initializer_list<int64_t> shape, uint64_t key, int64_t begin, int64_t end);
Doubles random_doubles(int64_t n, uint64_t key, double stddev = 1);
inline std::vector<int64_t> integers(const HostTensor& t) {
  const Doubles values = t.values();
  return {values.begin(), values.end()};
}

// A tensor as the plan sees it: no memory, Place::none.
inline Tensor imagined(Dtype dtype, std::initializer_list<int64_t> shape) { return Tensor(nullptr, dtype, Place::none, shape); }

// The largest |got - wanted| / (|wanted| + rms(wanted)): relative for large elements, against the tensor's scale for small ones.
// A NaN or an infinity on one side only, or different sizes, give infinity.
double error_of(const Doubles& got, const Doubles& wanted);
inline double error_of(const HostTensor& got, const Doubles& wanted) { return error_of(got.values(), wanted); }
inline bool close(const auto& got, const Doubles& wanted, double bound) { return error_of(got, wanted) <= bound; }

// Half a unit in the last place of a result rounded once to `dtype`, as a relative error.
constexpr double rounding(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-24; }

double dot(const Doubles& a, const Doubles& b);

// The gradient of f at x by central differences with step h. The error is about h^2 + 1e-16 / h, so
// 1e-9 is a fair bound for smooth f.
Doubles finite_differences(const std::function<double(const Doubles&)>& f, Doubles x, double h = 1e-5);

// OpenMP's number of threads within a scope.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace trireme
