// Tensor: a view of contiguous, row-major memory. It owns nothing and must not outlive its Arena or
// Buffer.
// A default-constructed Tensor is absent: optional operands of an op are left out. On Place::none a
// present tensor has no data.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <source_location>
#include <string>

#include "base/error.h"
#include "kernels/float8.h"

namespace trireme {

enum class Dtype : uint8_t { f32, bf16, i32, e4m3, e5m2, i8 };
enum class Place : uint8_t { none, cpu, cuda };

constexpr bool is_float8(Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::e5m2; }
constexpr int64_t bytes_of(Dtype dtype) { return is_float8(dtype) || dtype == Dtype::i8 ? 1 : dtype == Dtype::bf16 ? 2 : 4; }
constexpr const char* name_of(Dtype dtype) {
  constexpr const char* kNames[] = {"f32", "bf16", "i32", "e4m3", "e5m2", "i8"};
  return kNames[static_cast<size_t>(dtype)];
}
constexpr const char* name_of(Place place) { return place == Place::none ? "none" : place == Place::cpu ? "cpu" : "cuda"; }

// bf16: the upper half of an IEEE float. Conversion from float rounds to nearest even; NaN stays
// NaN.
struct Bf16 {
  uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
inline constexpr Dtype kDtype = Dtype::f32;
template <>
inline constexpr Dtype kDtype<Bf16> = Dtype::bf16;
template <>
inline constexpr Dtype kDtype<int32_t> = Dtype::i32;
template <>
inline constexpr Dtype kDtype<E4m3> = Dtype::e4m3;
template <>
inline constexpr Dtype kDtype<E5m2> = Dtype::e5m2;
template <>
inline constexpr Dtype kDtype<int8_t> = Dtype::i8;

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, Dtype dtype, Place place, std::initializer_list<int64_t> shape) : data_(data), dtype_(dtype), place_(place) {
    require(shape.size() >= 1 && shape.size() <= 4, text("a tensor has 1 to 4 dims, not ", shape.size()));
    for (const int64_t n : shape) {
      require(n >= 0, text("a dim of ", n));
      shape_[dims_++] = n;
    }
  }

  bool present() const { return dims_ > 0; }
  explicit operator bool() const { return present(); }

  Dtype dtype() const { return dtype_; }
  Place place() const { return place_; }
  int dims() const { return dims_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t size() const {
    int64_t n = present() ? 1 : 0;
    for (int i = 0; i < dims_; ++i) n *= shape_[i];
    return n;
  }
  int64_t bytes() const { return size() * bytes_of(dtype_); }
  int64_t cols() const { return dims_ == 0 ? 0 : shape_[dims_ - 1]; }  // the last dim
  int64_t rows() const { return cols() == 0 ? 0 : size() / cols(); }   // product of the other dims

  void* data() const { return data_; }
  template <class T>
  T* as(std::source_location at = std::source_location::current()) const {
    require(kDtype<T> == dtype_, text("tensor is ", name_of(dtype_), ", asked for as ", name_of(kDtype<T>)), at);
    return static_cast<T*>(data_);
  }

  // Views the same elements with another shape.
  Tensor view(std::initializer_list<int64_t> shape, std::source_location at = std::source_location::current()) const {
    Tensor t(data_, dtype_, place_, shape);
    require(t.size() == size(), text("view of ", t, " on ", *this), at);
    return t;
  }
  // Rows [begin, end) of the first dim.
  Tensor slice(int64_t begin, int64_t end, std::source_location at = std::source_location::current()) const {
    require(present() && 0 <= begin && begin <= end && end <= shape_[0], text("slice [", begin, ", ", end, ") of ", *this), at);
    Tensor t = *this;
    t.shape_[0] = end - begin;
    const int64_t row = shape_[0] == 0 ? 0 : size() / shape_[0];
    if (data_ != nullptr) t.data_ = static_cast<std::byte*>(data_) + begin * row * bytes_of(dtype_);
    return t;
  }

  bool same_shape(const Tensor& other) const { return dims_ == other.dims_ && shape_ == other.shape_; }
  bool has_shape(std::initializer_list<int64_t> shape) const {
    int i = 0;
    for (const int64_t n : shape)
      if (i >= dims_ || shape_[i++] != n) return false;
    return i == dims_;
  }
  // Prints dtype and shape, such as f32[2, 3].
  friend std::ostream& operator<<(std::ostream& out, const Tensor& t) {
    out << name_of(t.dtype_) << '[';
    for (int i = 0; i < t.dims_; ++i) out << (i > 0 ? ", " : "") << t.shape_[static_cast<size_t>(i)];
    return out << ']';
  }

 private:
  void* data_ = nullptr;
  Dtype dtype_ = Dtype::f32;
  Place place_ = Place::none;
  int dims_ = 0;
  std::array<int64_t, 4> shape_{};
};

// For an op's check(): requires that `t` has exactly this shape (and dtype).
inline void expect(const Tensor& t, const char* name, std::initializer_list<int64_t> shape,
                   std::source_location at = std::source_location::current()) {
  if (t.has_shape(shape)) [[likely]]
    return;
  std::string wanted;
  for (const int64_t n : shape) wanted += (wanted.empty() ? "" : ", ") + std::to_string(n);
  throw Error(text(name, " is ", t, ", expected [", wanted, "]"), at);
}
inline void expect(const Tensor& t, const char* name, Dtype dtype, std::initializer_list<int64_t> shape,
                   std::source_location at = std::source_location::current()) {
  expect(t, name, shape, at);
  require(t.dtype() == dtype, text(name, " is ", t, ", expected dtype ", name_of(dtype)), at);
}
inline void expect_float(const Tensor& t, const char* name, std::source_location at = std::source_location::current()) {
  require(t.dtype() == Dtype::f32 || t.dtype() == Dtype::bf16, text(name, " is ", t, ", expected f32 or bf16"), at);
}

}  // namespace trireme
