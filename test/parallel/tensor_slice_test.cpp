// Flat ranges of tensors as rectangular pieces.
#include "parallel/tensor_slice.h"

#include <numeric>
#include <vector>

#include "test/catch.h"

using namespace trireme;

TEST_CASE("any range of a matrix falls into at most three pieces that hold its elements in order") {
  constexpr int64_t kRows = 5, kCols = 7;
  std::vector<float> all(kRows * kCols);
  std::iota(all.begin(), all.end(), 0.0f);
  for (int64_t begin = 0; begin < kRows * kCols; ++begin)
    for (int64_t end = begin + 1; end <= kRows * kCols; ++end) {
      const Tensor local(all.data() + begin, Dtype::f32, Place::cpu, {end - begin});
      const auto slices = flat_slices("w", {kRows, kCols}, begin, local);
      REQUIRE(slices.size() <= 3);
      int64_t next = begin;
      for (const TensorSlice& s : slices) {
        REQUIRE(s.local.dims() == 2);
        for (int64_t r = 0; r < s.local.dim(0); ++r)
          for (int64_t c = 0; c < s.local.dim(1); ++c) {
            const int64_t element = (s.offset[0] + r) * kCols + s.offset[1] + c;
            REQUIRE(element == next++);
            REQUIRE(s.local.as<float>()[r * s.local.dim(1) + c] == static_cast<float>(element));
          }
      }
      REQUIRE(next == end);
    }
}

TEST_CASE("the whole of a matrix is one piece, and so is any range of a vector") {
  std::vector<float> all(12);
  const auto whole = flat_slices("w", {3, 4}, 0, Tensor(all.data(), Dtype::f32, Place::cpu, {12}));
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].local.has_shape({3, 4}));
  CHECK(whole[0].offset == std::vector<int64_t>{0, 0});
  const auto part = flat_slices("b", {12}, 5, Tensor(all.data(), Dtype::f32, Place::cpu, {3}));
  REQUIRE(part.size() == 1);
  CHECK(part[0].offset == std::vector<int64_t>{5});
  CHECK(part[0].global_shape == std::vector<int64_t>{12});
}
