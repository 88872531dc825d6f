// Products by the algorithm that was timed as the fastest, or that a run has kept. The emulated
// library has two, "one" and "two", and none that fuses an op if n is odd.
#include "kernels/device.h"
#include "kernels/tune/product_choice.h"
#include "test/catch.h"

namespace trireme {
namespace {

const std::vector<ProductShape> kProducts{{.m = 8, .n = 6, .k = 4, .count = 3},
                                          {.m = 8, .n = 6, .k = 4, .transpose_a = true, .accumulate = true, .sums = true},
                                          {.m = 5, .n = 7, .k = 4, .pre_activation = true}};
const char* const kFirst = "bf16 8 x 6 x 4 nn to bf16";
const char* const kSecond = "bf16 8 x 6 x 4 tn to f32, accumulated, sums";

// A timer for which the algorithm number `winner` is the fastest.
ProductTimer favouring(int winner) {
  return [winner, asked = 0](Device&, const ProductTrial&, double) mutable { return asked++ % 2 == winner ? 1.0 : 2.0; };
}

}  // namespace

TEST_CASE("of the algorithms of a product the fastest is chosen") {
  Device device(Place::cuda);
  for (const auto& [winner, name] : {std::pair(0, "one"), std::pair(1, "two")}) {
    const ChosenProducts chosen = choose_products(device, Dtype::bf16, kProducts, {}, favouring(winner));
    CHECK(chosen.choices == ProductChoices{{kFirst, name}, {kSecond, name}});  // the third is not offered
    CHECK(chosen.tried == 2);
    CHECK(chosen.gained == winner * 0.5);
  }
}

TEST_CASE("what a run has kept is not tried again, and what is not understood here is") {
  Device device(Place::cuda);
  const ProductChoices kept{{kFirst, "two"}, {kSecond, "of another version"}, {"bf16 1 x 1 x 1 nn to bf16", "one"}};
  const ChosenProducts chosen = choose_products(device, Dtype::bf16, kProducts, kept, favouring(0));
  CHECK(chosen.choices == ProductChoices{{kFirst, "two"}, {kSecond, "one"}});
  CHECK(chosen.tried == 1);
}

TEST_CASE("the time of a product is measured on its lane") {
  Device device(Place::cuda);
  const ProductTrial trial(device, Dtype::bf16, kProducts[1]);
  CHECK(time_product(device, trial, 0) > 0);
  CHECK(trial.product().sums.size() == 8);
}

}  // namespace trireme
