// Mixtures: each source's share in every window, each sample once an epoch, the same order whoever asks.
#include "data/loader/mixture.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "data/loader/loader.h"
#include "data/loader/shuffle.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

// The largest difference between a source's samples in a window of `length` and its share of it, over all windows in some hundred
// blocks from the first sample, and around the ends of the first periods and of a far one.
double farthest(const MixtureSchedule& turns, const std::vector<double>& weights, int64_t length) {
  double sum = 0, most = 0;
  for (const double weight : weights) sum += weight;
  for (const int64_t middle : {50 * MixtureSchedule::kBlock, MixtureSchedule::kPeriod, 2 * MixtureSchedule::kPeriod,
                               1'000'003 * MixtureSchedule::kPeriod}) {
    const int64_t begin = middle - 50 * MixtureSchedule::kBlock;
    std::vector<uint8_t> sources;
    for (int64_t n = begin; n < middle + 50 * MixtureSchedule::kBlock; ++n)
      sources.push_back(static_cast<uint8_t>(turns.at(n).source));
    const auto window = static_cast<size_t>(length);
    for (size_t i = 0; i < weights.size(); ++i) {
      int64_t count = std::count(sources.begin(), sources.begin() + length, i);
      for (size_t n = 0;; ++n) {
        most = std::max(most, std::abs(static_cast<double>(count) - weights[i] / sum * static_cast<double>(length)));
        if (n + window >= sources.size()) break;
        count += (sources[n + window] == i ? 1 : 0) - (sources[n] == i ? 1 : 0);
      }
    }
  }
  return most;
}

// Tokens first, first + 1, ... as one shard.
std::string counting_shard(const Scratch& scratch, const std::string& name, int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = first + i;
  const std::vector<int64_t> starts{0};
  const std::string path = scratch / name;
  write_shard(path, {"counting", 100000, 99999, count}, tokens, starts);
  return path;
}

}  // namespace

TEST_CASE("in every window of a thousand samples each source has its share to within one") {
  CHECK(farthest(MixtureSchedule({0.7, 0.3}), {0.7, 0.3}, 1000) < 1e-6);
  CHECK(farthest(MixtureSchedule({0.7, 0.3}), {0.7, 0.3}, 10) < 1e-6);
  CHECK(farthest(MixtureSchedule({0.123, 0.377, 0.5}), {0.123, 0.377, 0.5}, 1000) < 1e-6);
  CHECK(farthest(MixtureSchedule({1}), {1}, 1000) == 0);
  const double rounding = 1000.0 / MixtureSchedule::kPeriod;
  CHECK(farthest(MixtureSchedule({1, M_PI}), {1, M_PI}, 1000) < 1 + rounding);
  CHECK(farthest(MixtureSchedule(std::vector(31, 1.0)), std::vector(31, 1.0), 1000) < 1 + rounding);
  CHECK(farthest(MixtureSchedule({1, 1, 3000}), {1, 1, 3000}, 1000) < 1 + rounding);
  std::mt19937 chance(3);
  double most = 0, of_hundred = 0;
  for (int i = 0; i < (kSanitized ? 3 : 12); ++i) {
    std::vector<double> weights;
    for (size_t k = 3 + chance() % 6; k > 0; --k) weights.push_back(0.01 + std::uniform_real_distribution(0.0, 1.0)(chance));
    const MixtureSchedule turns(weights);
    most = std::max(most, farthest(turns, weights, 1000));
    of_hundred = std::max(of_hundred, farthest(turns, weights, 100));
  }
  WARN("of 3 to 8 sources: at most " << most << " samples from its share, in windows of a hundred " << of_hundred);
  CHECK(most < 1 + rounding);
  CHECK(of_hundred < 3);
}

TEST_CASE("the first samples of a mixture are its sources' in turn, each close to its share") {
  double most = 0;
  for (const std::vector<double>& weights : {std::vector{1.0, 1.0},
                                             {1.0, 2.0, 4.0},
                                             {0.5, 0.25, 0.125, 0.125},
                                             {97.0, 1.0, 1.0, 1.0},
                                             {std::sqrt(2), std::sqrt(3), std::sqrt(5), M_E, M_PI}}) {
    const MixtureSchedule turns(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const int64_t begin : {int64_t{0}, MixtureSchedule::kPeriod - 50'000, 7 * MixtureSchedule::kPeriod - 50'000}) {
      std::vector<int64_t> had;
      for (size_t i = 0; i < weights.size(); ++i) had.push_back(turns.count(i, begin));
      CHECK(std::accumulate(had.begin(), had.end(), int64_t{0}) == begin);
      for (int64_t n = begin; n < begin + 100'000; ++n) {
        const auto [source, number] = turns.at(n);
        REQUIRE(number == had[source]++);
        if (n % 997 == 0) REQUIRE(turns.count(source, n + 1) == had[source]);
        const double rounding = static_cast<double>(n + 1) / MixtureSchedule::kPeriod;
        for (size_t i = 0; i < had.size(); ++i)
          most = std::max(most, std::abs(static_cast<double>(had[i]) - weights[i] / sum * static_cast<double>(n + 1)) - rounding);
      }
    }
  }
  WARN("of the first samples a source is at most " << most << " from its share");
  CHECK(most < 3);
}

TEST_CASE("far samples cost as little as near ones") {
  const MixtureSchedule turns({0.31, 0.59, 0.1});
  const int64_t far = 1'000'000'000'000;
  const auto begin = std::chrono::steady_clock::now();
  int64_t sum = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    const auto [source, number] = turns.at(far + i);
    sum += permuted(7, number / 1'000'000'000, number % 1'000'000'000, 1'000'000'000);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(sum > 0);
  WARN("a sample among 10^9: " << seconds * 10 << " us");
  CHECK(seconds < 5);  // 50 us each, on a machine that does other things, too
  CHECK(turns.count(0, far) == 310'000'000'000);
}

TEST_CASE(
    "a mixture reads each source whole, epoch after epoch, and the same for any number of replicas and any step to begin at") {
  const Scratch scratch;
  std::vector<Corpus> sources;
  sources.emplace_back(std::vector{counting_shard(scratch, "a.h5", 0, 4 * 10 + 1)}, 4, false);
  sources.emplace_back(std::vector{counting_shard(scratch, "b.h5", 1000, 4 * 25 + 1)}, 4, false);
  sources.emplace_back(std::vector{counting_shard(scratch, "c.h5", 2000, 4 * 3 + 1)}, 4, false);
  const Mixture mixture(sources, {0.5, 0.3, 0.2});
  CHECK(mixture.samples() == 38);
  CHECK(mixture.tokens() == 41 + 101 + 13);

  const LoaderOptions options{.context = 4, .batch = 8, .seed = 5, .document_mask = true, .restart_positions = false};
  const auto firsts = [](const Batch& batch) {
    std::vector<int32_t> tokens;
    for (int64_t row = 0; row < batch.tokens.dim(0); ++row) tokens.push_back(batch.tokens.as<int32_t>()[row * 4]);
    return tokens;
  };
  std::vector<std::vector<int32_t>> steps;
  Loader whole(mixture, options);
  for (int step = 0; step < 40; ++step) steps.push_back(firsts(whole.next()));

  std::map<int32_t, std::vector<int32_t>> of_source;
  for (const auto& step : steps)
    for (const int32_t token : step) of_source[token / 1000].push_back(token);
  CHECK(of_source[0].size() == 160);
  CHECK(of_source[1].size() == 96);
  CHECK(of_source[2].size() == 64);
  for (const auto& [source, samples] : std::map<int32_t, size_t>{{0, 10}, {1, 25}, {2, 3}})
    for (size_t epoch = 0; (epoch + 1) * samples <= of_source[source].size(); ++epoch) {
      const auto begin = of_source[source].begin() + static_cast<ptrdiff_t>(epoch * samples);
      CHECK(std::set<int32_t>(begin, begin + static_cast<ptrdiff_t>(samples)).size() == samples);
    }

  for (const int replicas : {2, 4, 8}) {
    std::vector<std::unique_ptr<Loader>> parts;
    for (int r = 0; r < replicas; ++r) {
      LoaderOptions part = options;
      part.replica = r, part.replicas = replicas;
      parts.push_back(std::make_unique<Loader>(mixture, part));
      parts.back()->seek(replicas);  // as a resumed run does
    }
    for (size_t step = static_cast<size_t>(replicas); step < steps.size(); ++step) {
      std::vector<int32_t> together;
      for (auto& part : parts) std::ranges::copy(firsts(part->next()), std::back_inserter(together));
      CHECK(together == steps[step]);
    }
  }
}

TEST_CASE("mixtures that cannot be are refused") {
  CHECK_THROWS_WITH(MixtureSchedule({}), ContainsSubstring("no sources"));
  CHECK_THROWS_WITH(MixtureSchedule({1, 0}), ContainsSubstring("holds 0: must be above 0"));
  CHECK_THROWS_WITH(MixtureSchedule({1, -1}), ContainsSubstring("must be above 0"));
  CHECK_THROWS_WITH(MixtureSchedule({1, NAN}), ContainsSubstring("must be above 0"));
  CHECK_THROWS_WITH(MixtureSchedule({1, 1e-9}), ContainsSubstring("less than one sample in 4096000"));
  const Scratch scratch;
  std::vector<Corpus> sources;
  sources.emplace_back(std::vector{counting_shard(scratch, "a.h5", 0, 50)}, 4, false);
  const std::vector<int32_t> tokens(50, 1);
  write_shard(scratch / "b.h5", {"another", 100000, 99999, 50}, tokens, std::vector<int64_t>{0});
  sources.emplace_back(std::vector{scratch / "b.h5"}, 4, false);
  CHECK_THROWS_WITH(Mixture(sources, {1, 1}), ContainsSubstring("b.h5: was made with tokenizer another, but"));
}
