// Products by the algorithm that was timed as the fastest, or that a run has kept. The emulated
// library has two, "one" and "two", and none that fuses an op if n is odd.
#include <cmath>

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
const char* const kSecondPlain = "bf16 8 x 6 x 4 tn to f32, accumulated";
const char* const kThird = "bf16 5 x 7 x 4 nn to bf16, gelu";
const char* const kThirdPlain = "bf16 5 x 7 x 4 nn to bf16";

int allocations = 0;
std::byte* allocate_counted(int64_t bytes) { return ++allocations, allocate_on_gpu(bytes); }

// A timer for which the algorithms that it is asked about take so long, one after the other.
ProductTimer taking(std::vector<double> seconds) {
  return [seconds, asked = size_t{0}](Device&, const ProductTrial&, double) mutable { return seconds.at(asked++); };
}

}  // namespace

TEST_CASE("of the algorithms of a product the fastest is chosen, and of a fused one and two ops the faster") {
  Device device(Place::cuda);
  // The first: "one", "two". The second: the same, fused; then plain; then apart. The third is not fused by the library.
  const ChosenProducts apart = choose_products(device, Dtype::bf16, kProducts, {}, taking({2, 1, 6, 5, 3, 2, 4, 1, 2, 3}));
  CHECK(apart.choices ==
        ProductChoices{{kFirst, "two"}, {kSecond, kApart}, {kSecondPlain, "two"}, {kThird, kApart}, {kThirdPlain, "one"}});
  CHECK(apart.apart == 1);
  CHECK(apart.wrong == 0);
  CHECK(apart.gained == Approx(1 - (3 * 1 + 4 + 3) / (3 * 2 + 6 + 3.0)));
  const ChosenProducts fused = choose_products(device, Dtype::bf16, kProducts, {}, taking({1, 2, 3, 2, 3, 2, 2, 1, 2, 3}));
  CHECK(fused.choices.at(kFirst) == "one");
  CHECK(fused.choices.at(kSecond) == "two");
  CHECK(fused.apart == 0);
}

TEST_CASE("a fused product that runs apart has the same results") {
  Device device(Place::cuda);
  for (const ProductShape& shape : {ProductShape{.m = 8, .n = 6, .k = 4, .transpose_a = true, .accumulate = true, .sums = true},
                                    ProductShape{.m = 8, .n = 4096, .k = 4, .bias = true, .pre_activation = true},
                                    ProductShape{.m = 8, .n = 6, .k = 4, .gelu_input = true}}) {
    ProductTrial trial(device, Dtype::bf16, shape);
    REQUIRE(prefer_algorithm(trial.product(), "one"));
    const std::vector<float> fused = trial.results();
    CHECK(trial.results() == fused);  // what it writes over is restored
    REQUIRE(prefer_algorithm(trial.product(), kApart));
    const std::vector<float> apart = trial.results();
    CHECK(apart != std::vector<float>(apart.size()));
    CHECK(agree(apart, fused));
    REQUIRE(prefer_algorithm(trial.product(), "one"));
  }
  CHECK_FALSE(prefer_algorithm(ProductTrial(device, Dtype::bf16, kProducts[0]).product(), kApart));
  CHECK_FALSE(agree({1, 2}, {1, 2.1f}));
  CHECK_FALSE(agree({1, NAN}, {1, 2}));
  CHECK_FALSE(agree({1}, {1, 0}));
}

TEST_CASE("what a run has kept is not tried again, and what is not understood here is") {
  Device device(Place::cuda);
  const ProductChoices kept{{kFirst, "two"},
                            {kSecond, "of another version"},
                            {"bf16 1 x 1 x 1 nn to bf16", "one"},
                            {kThird, kApart},
                            {kThirdPlain, "two"}};
  const ChosenProducts chosen = choose_products(device, Dtype::bf16, kProducts, kept, taking({1, 2, 1, 2, 3}));
  CHECK(chosen.choices ==
        ProductChoices{{kFirst, "two"}, {kSecond, "one"}, {kSecondPlain, "one"}, {kThird, kApart}, {kThirdPlain, "two"}});
  CHECK(chosen.tried == 2);
}

TEST_CASE("what a run has kept takes no memory, which would go while kernels fill it") {
  Device device(Place::cuda);
  device.allocate_by({.allocate = allocate_counted, .free = free_on_gpu});
  const ProductChoices kept{{kFirst, "two"}, {kSecond, kApart}, {kSecondPlain, "one"}, {kThird, kApart}, {kThirdPlain, "two"}};
  CHECK(choose_products(device, Dtype::bf16, kProducts, kept, taking({})).choices == kept);
  CHECK(allocations == 0);
  CHECK(choose_products(device, Dtype::bf16, {kProducts[0]}, {}, taking({1, 2})).tried == 1);
  CHECK(allocations == 1);
}

TEST_CASE("the time of a product is measured on its lane") {
  Device device(Place::cuda);
  const ProductTrial trial(device, Dtype::bf16, kProducts[1]);
  CHECK(time_product(device, trial, 0) > 0);
  CHECK(trial.product().sums.size() == 8);
}

}  // namespace trireme
