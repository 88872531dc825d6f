// Choices of a token: frequencies are those of the formula, whatever cuts the tokens to choose from.
#include "train/eval/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "test/catch.h"

namespace trireme {
namespace {

std::vector<float> some_logits(size_t count) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) logits[i] = static_cast<float>(3 * std::sin(1.7 * static_cast<double>(i)));
  logits[2] = logits[5];  // of equals the first one goes first
  return logits;
}

// The probability of each token, by sorting all.
std::vector<double> wanted(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<size_t> order(static_cast<size_t>(sampling.vocab));
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(sampling.top_k)));
  std::vector<double> weights(logits.size());
  double all = 0, sum = 0;
  for (const size_t i : order) all += std::exp(logits[i] / sampling.temperature);
  for (const size_t i : order)
    if (sum < sampling.top_p * all) sum += weights[i] = std::exp(logits[i] / sampling.temperature);
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

TEST_CASE("tokens are drawn as often as their probabilities say, of the most likely ones alone where that is asked for") {
  const std::vector<float> logits = some_logits(40);
  constexpr int64_t kDraws = 20000;
  for (const Sampling& sampling :
       {Sampling{.temperature = 1, .vocab = 40}, Sampling{.temperature = 0.5, .vocab = 38},
        Sampling{.temperature = 1, .top_k = 3, .vocab = 40}, Sampling{.top_k = 100, .vocab = 40},
        Sampling{.temperature = 2, .top_p = 0.6, .seed = 7, .vocab = 40},
        Sampling{.temperature = 1, .top_k = 8, .top_p = 0.5, .vocab = 40}, Sampling{.temperature = 1, .top_p = 0, .vocab = 40}}) {
    CAPTURE(sampling.temperature, sampling.top_k, sampling.top_p);
    std::vector<int64_t> counts(logits.size());
    for (int64_t i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(choose_token(logits, sampling, i))];
    const std::vector<double> expected =
        sampling.top_p > 0 ? wanted(logits, sampling) : wanted(logits, {.temperature = 1, .top_k = 1, .vocab = 40});
    for (size_t i = 0; i < counts.size(); ++i) {
      CAPTURE(i);
      const double p = expected[i], deviation = std::sqrt(kDraws * p * (1 - p));
      CHECK(std::abs(static_cast<double>(counts[i]) - kDraws * p) <= 4.5 * deviation + 1e-6);
    }
  }
}

TEST_CASE("at temperature 0 the most likely token is taken, of equals the first, and none beyond the tokenizer's") {
  std::vector<float> logits(50000, -1);
  logits[49000] = 3, logits[70] = logits[4000] = 2;
  CHECK(choose_token(logits, {.temperature = 0, .vocab = 50000}, 0) == 49000);
  CHECK(choose_token(logits, {.temperature = 0, .vocab = 49000}, 0) == 70);
  CHECK(choose_token(logits, {.temperature = 1e-9, .vocab = 49000}, 0) <= 4000);
}

TEST_CASE("no token is chosen from logits that are not finite") {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Sampling& sampling :
         {Sampling{.temperature = 0, .vocab = 8}, Sampling{.vocab = 8}, Sampling{.top_k = 2, .vocab = 8}}) {
      std::vector<float> logits = some_logits(9);
      logits[8] = wrong;
      CHECK(choose_token(logits, sampling, 0) < 8);
      logits[5] = wrong;
      CHECK_THROWS_WITH(choose_token(logits, sampling, 0), ContainsSubstring("not finite"));
    }
}

}  // namespace trireme
