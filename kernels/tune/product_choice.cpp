#include "kernels/tune/product_choice.h"

#include <algorithm>

#include "kernels/tune/product_trial.h"

namespace trireme {
namespace {

constexpr int kMost = 16;               // algorithms to try
constexpr double kLeastSeconds = 2e-3;  // for each algorithm
constexpr double kAgreement = 0.02;     // see agree()

struct Choice {
  std::string algorithm;
  double first = 0, best = 0;  // seconds: of the library's recommendation; of the choice
  std::vector<float> results{};
};

// Tunes products one by one.
class Tuner {
 public:
  Tuner(Device& device, Dtype dtype, const ProductChoices& known, const ProductTimer& time)
      : device_(device), dtype_(dtype), known_(known), time_(time) {}

  ChosenProducts chosen;
  double first = 0, best = 0;  // seconds of a step's products

  void tune(const ProductShape& shape) {
    if (recall(shape)) return;
    ProductTrial trial(device_, dtype_, shape);
    Choice choice = fastest(trial);
    if (shape.fused()) choice = or_apart(shape, trial, choice);
    if (choice.algorithm.empty()) return;
    chosen.choices[words_of(dtype_, shape)] = choice.algorithm;
    ++chosen.tried;
    first += choice.first * static_cast<double>(shape.count), best += choice.best * static_cast<double>(shape.count);
  }

 private:
  // True if the run knows an algorithm for this shape that is valid here. Takes no memory for it.
  bool recall(const ProductShape& shape) {
    const auto at = known_.find(words_of(dtype_, shape));
    if (at == known_.end() || !prefer_algorithm(imagined_product(dtype_, shape), at->second)) return false;
    chosen.choices[at->first] = at->second;
    if (at->second == kApart) tune(shape.plain());
    return true;
  }

  Choice fastest(ProductTrial& trial) {
    Choice choice;
    for (const std::string& algorithm : product_algorithms(trial.product(), kMost)) {
      if (!prefer_algorithm(trial.product(), algorithm)) continue;
      const std::vector<float> results = trial.results();
      if (choice.algorithm.empty()) {
        choice.results = results;
      } else if (!agree(results, choice.results)) {
        ++chosen.wrong;
        continue;
      }
      const double seconds = time_(device_, trial, kLeastSeconds);
      if (choice.algorithm.empty()) choice.first = choice.best = seconds, choice.algorithm = algorithm;
      if (seconds < choice.best) choice.best = seconds, choice.algorithm = algorithm;
    }
    if (!choice.algorithm.empty()) prefer_algorithm(trial.product(), choice.algorithm);
    return choice;
  }

  // The choice, or kApart with a plain product if that is faster, or the library does not fuse, or otherwise than we do.
  Choice or_apart(const ProductShape& shape, ProductTrial& trial, Choice fused) {
    if (const ProductShape plain = shape.plain(); !chosen.choices.contains(words_of(dtype_, plain))) {
      const double first_before = first, best_before = best;
      tune(plain);
      first = first_before, best = best_before;  // it runs as a part of the fused one, if at all
    }
    if (!prefer_algorithm(trial.product(), kApart)) return fused;
    bool offered = !fused.algorithm.empty();
    if (offered && !agree(fused.results, trial.results())) offered = false, ++chosen.wrong;
    const double seconds = time_(device_, trial, kLeastSeconds);
    if (offered && fused.best <= seconds) {
      prefer_algorithm(trial.product(), fused.algorithm);
      return fused;
    }
    if (offered) ++chosen.apart;
    return {.algorithm = kApart, .first = offered ? fused.first : seconds, .best = seconds};
  }

  Device& device_;
  Dtype dtype_;
  const ProductChoices& known_;
  const ProductTimer& time_;
};

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

bool agree(const std::vector<float>& results, const std::vector<float>& others) {
  double distance = 0, norm = 0;
  for (size_t i = 0; i < std::min(results.size(), others.size()); ++i) {
    const double difference = double{results[i]} - double{others[i]};
    distance += difference * difference, norm += double{others[i]} * double{others[i]};
  }
  return results.size() == others.size() && distance <= kAgreement * kAgreement * norm;
}

ChosenProducts choose_products(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, const ProductChoices& known,
                               const ProductTimer& time) {
  Tuner tuner(device, dtype, known, time);
  for (const ProductShape& shape : shapes)
    if (!tuner.chosen.choices.contains(words_of(dtype, shape))) tuner.tune(shape);
  if (tuner.first > 0) tuner.chosen.gained = 1 - tuner.best / tuner.first;
  return tuner.chosen;
}

}  // namespace trireme
