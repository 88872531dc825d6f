#include "kernels/tune/product_choice.h"

#include "kernels/tune/product_trial.h"

namespace trireme {
namespace {

constexpr int kMost = 16;               // algorithms to try
constexpr double kLeastSeconds = 2e-3;  // for each algorithm

struct Choice {
  std::string algorithm;
  double first = 0, best = 0;  // seconds: of the library's recommendation; of the choice
};

Choice fastest(Device& device, const ProductTrial& trial, const ProductTimer& time) {
  Choice choice;
  for (const std::string& algorithm : product_algorithms(trial.product(), kMost)) {
    if (!prefer_algorithm(trial.product(), algorithm)) continue;
    const double seconds = time(device, trial, kLeastSeconds);
    if (choice.algorithm.empty()) choice.first = choice.best = seconds, choice.algorithm = algorithm;
    if (seconds < choice.best) choice.best = seconds, choice.algorithm = algorithm;
  }
  if (!choice.algorithm.empty()) prefer_algorithm(trial.product(), choice.algorithm);
  return choice;
}

}  // namespace

std::string words_of(Dtype dtype, const ProductShape& s) {
  std::string words = (s.bits8 ? name_of(*s.bits8) + std::string(" x e4m3") : name_of(dtype)) + " " + std::to_string(s.m) + " x " +
                      std::to_string(s.n) + " x " + std::to_string(s.k) + " " + (s.transpose_a ? "t" : "n") +
                      (s.transpose_b ? "t" : "n") + " to " + name_of(s.result(dtype));
  for (const auto& [takes, what] :
       {std::pair(s.accumulate, "accumulated"), std::pair(s.bias, "bias"), std::pair(s.pre_activation, "gelu"),
        std::pair(s.gelu_input, "gelu backward"), std::pair(s.sums, "sums")})
    if (takes) words += std::string(", ") + what;
  return words;
}

double time_product(Device&, const ProductTrial& trial, double least_seconds) { return trial.seconds(least_seconds); }

ChosenProducts choose_products(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, const ProductChoices& known,
                               const ProductTimer& time) {
  ChosenProducts chosen;
  double first = 0, best = 0;
  for (const ProductShape& shape : shapes) {
    const std::string words = words_of(dtype, shape);
    const ProductTrial trial(device, dtype, shape);
    const auto at = known.find(words);
    if (at != known.end() && prefer_algorithm(trial.product(), at->second)) {
      chosen.choices[words] = at->second;
      continue;
    }
    const Choice choice = fastest(device, trial, time);
    if (choice.algorithm.empty()) continue;  // unsupported by the library: the fused ops run separately
    chosen.choices[words] = choice.algorithm;
    ++chosen.tried;
    first += choice.first * static_cast<double>(shape.count), best += choice.best * static_cast<double>(shape.count);
  }
  if (first > 0) chosen.gained = 1 - best / first;
  return chosen;
}

}  // namespace trireme
