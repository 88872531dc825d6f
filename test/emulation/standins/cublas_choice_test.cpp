// Algorithms of cuBLASLt, over its stand-in: it has three, of which the last may be wrong.
#include <cstdlib>

#include "kernels/device.h"
#include "kernels/tune/product_choice.h"
#include "test/catch.h"

namespace trireme {

TEST_CASE("an algorithm whose results differ from the recommended one's is left out, however fast", "[cublas]") {
  Device device(Place::cuda);
  const ProductShape shape{.m = 16, .n = 32, .k = 48, .bias = true, .pre_activation = true};
  int asked = 0;
  const auto faster_each_time = [&](Device&, const ProductTrial&, double) { return 1.0 / ++asked; };
  const auto choose = [&](const std::vector<ProductShape>& shapes, const ProductChoices& known) {
    asked = 0;
    return choose_products(device, Dtype::bf16, shapes, known, faster_each_time);
  };
  const ChosenProducts right = choose({shape.plain()}, {});
  CHECK(asked == 3);
  setenv("STANDIN_WRONG", "1", 1);
  const ChosenProducts wrong = choose({shape.plain()}, {});
  CHECK(asked == 2);
  CHECK(wrong.wrong == 1);
  CHECK(wrong.choices != right.choices);
  const ChosenProducts fused = choose({shape}, {});
  unsetenv("STANDIN_WRONG");
  CHECK(fused.choices.size() == 2);  // and the plain product, with which it runs apart
  CHECK(fused.wrong == 2);
  CHECK(choose({shape}, fused.choices).tried == 0);
  CHECK(choose({shape}, {{words_of(Dtype::bf16, shape), "00"}}).tried == 2);
}

}  // namespace trireme
