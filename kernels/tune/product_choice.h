// Choice of a library's algorithm for each product on a GPU, timed before the first step. It is
// plain data, so that a run can keep it: the last bits of a product depend on it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/tune/product_trial.h"

namespace trireme {

// Algorithm by product: "bf16 8192 x 3072 x 768 nt to bf16, bias, gelu". kApart for a fused product that is faster as
// two ops.
using ProductChoices = std::map<std::string, std::string>;
std::string words_of(Dtype dtype, const ProductShape& shape);

using ProductTimer = std::function<double(Device&, const ProductTrial&, double least_seconds)>;
double time_product(Device& device, const ProductTrial& trial, double least_seconds);

// True if an algorithm's results are those of another up to rounding: L2 distance at most 2 % of the norm.
bool agree(const std::vector<float>& results, const std::vector<float>& others);

struct ChosenProducts {
  ProductChoices choices{};  // for all shapes
  int tried = 0;             // number of shapes that were tuned now
  int apart = 0;             // of them, fused ones that are faster as two ops
  int wrong = 0;             // algorithms that were left out, as their results differ from the recommended one's
  double gained = 0;         // share of all products' time saved, compared to the library's recommendation
};
// Chooses algorithms for products of these shapes with inputs of `dtype`: those in `known`, if
// valid here, else the fastest that the library knows. Needs Place::cuda; takes memory of `device`,
// which must not be frozen.
ChosenProducts choose_products(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, const ProductChoices& known,
                               const ProductTimer& time = time_product);

}  // namespace trireme
