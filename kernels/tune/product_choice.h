// By which of its library's algorithms a GPU does which product: tried on the GPU before the first step, and plain data, so that a
// run can keep it: the last bits of a product depend on it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/tune/product_trial.h"

namespace trireme {

// By product, in words: "bf16 8192 x 3072 x 768 nt to bf16, bias, gelu".
using ProductChoices = std::map<std::string, std::string>;
std::string words_of(Dtype dtype, const ProductShape& shape);

using ProductTimer = std::function<double(Device&, const ProductTrial&, double least_seconds)>;
double time_product(Device& device, const ProductTrial& trial, double least_seconds);

struct ChosenProducts {
  ProductChoices choices{};  // of all shapes
  int tried = 0;             // of them, chosen now
  double gained = 0;         // share of all products' time that the choice saves against the library's own advice
};
// Products of these shapes, with inputs of `dtype`, are done from here on as `known` says; where it says nothing that is understood
// here, by the fastest of what the library knows. Place::cuda; takes memory of `device`, which is not frozen.
ChosenProducts choose_products(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, const ProductChoices& known,
                               const ProductTimer& time = time_product);

}  // namespace trireme
