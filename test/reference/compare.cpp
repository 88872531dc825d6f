#include "test/reference/compare.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "test/reference/place.h"

namespace trireme {

HostTensor::HostTensor(Dtype dtype, std::initializer_list<int64_t> shape) : dtype_(dtype), shape_(shape) {
  bytes_ = Tensor(nullptr, dtype, Place::none, shape).bytes();
  data_ = take_memory(bytes_);
}

HostTensor::HostTensor(const HostTensor& other)
    : dtype_(other.dtype_), shape_(other.shape_), bytes_(other.bytes_), data_(take_memory(other.bytes_)) {
  settle();
  std::memcpy(data_, other.data_, static_cast<size_t>(bytes_));
}
HostTensor::HostTensor(HostTensor&& other) noexcept
    : dtype_(other.dtype_),
      shape_(std::move(other.shape_)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}
// Reuses the present memory if it fits: existing tensors still point to it.
HostTensor& HostTensor::operator=(HostTensor other) {
  settle();
  std::swap(dtype_, other.dtype_), std::swap(shape_, other.shape_);
  if (bytes_ == other.bytes_) {
    if (bytes_ > 0) std::memcpy(data_, other.data_, static_cast<size_t>(bytes_));
  } else {
    std::swap(bytes_, other.bytes_), std::swap(data_, other.data_);
  }
  return *this;
}
HostTensor::~HostTensor() { give_memory(data_); }

bool HostTensor::operator==(const HostTensor& other) const {
  settle();
  return dtype_ == other.dtype_ && shape_ == other.shape_ && std::memcmp(data_, other.data_, static_cast<size_t>(bytes_)) == 0;
}

HostTensor::HostTensor(Dtype dtype, std::initializer_list<int64_t> shape, const Doubles& values) : HostTensor(dtype, shape) {
  require(static_cast<int64_t>(values.size()) == size(), text(values.size(), " values for ", tensor()));
  settle();
  for (int64_t i = 0; i < size(); ++i) put(i, values[static_cast<size_t>(i)]);
}

HostTensor::operator Tensor() const {
  const auto& s = shape_;
  std::byte* const data = data_;
  switch (s.size()) {
    case 1:
      return Tensor(data, dtype_, tested_place(), {s[0]});
    case 2:
      return Tensor(data, dtype_, tested_place(), {s[0], s[1]});
    case 3:
      return Tensor(data, dtype_, tested_place(), {s[0], s[1], s[2]});
    default:
      return Tensor(data, dtype_, tested_place(), {s[0], s[1], s[2], s[3]});
  }
}

int64_t HostTensor::size() const { return bytes_ / bytes_of(dtype_); }

template <class T>
T& HostTensor::element(int64_t i) const {
  return reinterpret_cast<T*>(data_)[i];
}

double HostTensor::get(int64_t i) const {
  if (dtype_ == Dtype::i32) return element<int32_t>(i);
  if (dtype_ == Dtype::i8) return element<int8_t>(i);
  if (dtype_ == Dtype::e4m3) return static_cast<float>(element<E4m3>(i));
  if (dtype_ == Dtype::e5m2) return static_cast<float>(element<E5m2>(i));
  return dtype_ == Dtype::bf16 ? static_cast<float>(element<Bf16>(i)) : element<float>(i);
}

void HostTensor::put(int64_t i, double value) {
  if (dtype_ == Dtype::i32) element<int32_t>(i) = static_cast<int32_t>(value);
  if (dtype_ == Dtype::i8) element<int8_t>(i) = static_cast<int8_t>(value);
  if (dtype_ == Dtype::e4m3) element<E4m3>(i) = E4m3(static_cast<float>(value));
  if (dtype_ == Dtype::e5m2) element<E5m2>(i) = E5m2(static_cast<float>(value));
  if (dtype_ == Dtype::f32) element<float>(i) = static_cast<float>(value);
  if (dtype_ == Dtype::bf16) element<Bf16>(i) = Bf16(static_cast<float>(value));
}

double HostTensor::operator[](int64_t i) const {
  settle();
  return get(i);
}

void HostTensor::set(int64_t i, double value) {
  settle();
  put(i, value);
}

Doubles HostTensor::values() const {
  settle();
  Doubles values(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) values[static_cast<size_t>(i)] = get(i);
  return values;
}

HostTensor random_tensor(Dtype dtype, std::initializer_list<int64_t> shape, uint64_t key, double stddev) {
  return HostTensor(dtype, shape, random_doubles(imagined(dtype, shape).size(), key, stddev));
}

HostTensor random_integers(std::initializer_list<int64_t> shape, uint64_t key, int64_t begin, int64_t end) {
  HostTensor t(Dtype::i32, shape);
  const auto range = static_cast<uint64_t>(end - begin);
  for (int64_t i = 0; i < t.size(); ++i)
    t.set(i, static_cast<double>(begin + static_cast<int64_t>(philox64(key, static_cast<uint64_t>(i)) % range)));
  return t;
}

Doubles random_doubles(int64_t n, uint64_t key, double stddev) {
  Doubles values;
  for (int64_t i = 0; i < n; ++i) values.push_back(stddev * normal(key, static_cast<uint64_t>(i)));
  return values;
}

double error_of(const Doubles& got, const Doubles& wanted) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != wanted.size()) return kInfinity;
  double squares = 0;
  for (const double w : wanted) squares += std::isfinite(w) ? w * w : 0;
  const double rms = wanted.empty() ? 0 : std::sqrt(squares / static_cast<double>(wanted.size()));
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], w = wanted[i];
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    if (!std::isfinite(g) || !std::isfinite(w)) return kInfinity;
    const double scale = std::abs(w) + rms;
    worst = std::max(worst, scale > 0 ? std::abs(g - w) / scale : kInfinity);
  }
  return worst;
}

double dot(const Doubles& a, const Doubles& b) {
  require(a.size() == b.size(), text("dot of ", a.size(), " and ", b.size(), " values"));
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Doubles finite_differences(const std::function<double(const Doubles&)>& f, Doubles x, double h) {
  Doubles gradient;
  for (double& element : x) {
    const double at = element;
    element = at + h;
    const double above = f(x);
    element = at - h;
    const double below = f(x);
    element = at;
    gradient.push_back((above - below) / (2 * h));
  }
  return gradient;
}

Threads::Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
Threads::~Threads() { omp_set_num_threads(before_); }

}  // namespace trireme
