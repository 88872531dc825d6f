#include "data/turns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"

namespace trireme {

namespace {

// The shortest period of which each weight is a whole number of samples; nullopt: kLongest is too short for it.
std::vector<int64_t> exact_quotas(const std::vector<double>& shares) {
  for (int64_t period = 1; period <= Turns::kLongest; ++period) {
    const auto whole = [&](double share) {
      const double samples = share * static_cast<double>(period), nearest = std::round(samples);
      return nearest >= 1 && std::abs(samples - nearest) < 1e-7;
    };
    if (!std::ranges::all_of(shares, whole)) continue;
    std::vector<int64_t> quotas;
    for (const double share : shares) quotas.push_back(std::llround(share * static_cast<double>(period)));
    if (std::accumulate(quotas.begin(), quotas.end(), int64_t{0}) == period) return quotas;
  }
  return {};
}

// Of kLongest samples: what is lost by rounding down goes to the largest remainders.
std::vector<int64_t> nearest_quotas(const std::vector<double>& shares) {
  std::vector<int64_t> quotas;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double samples = shares[i] * Turns::kLongest;
    quotas.push_back(static_cast<int64_t>(samples));
    remainders.emplace_back(samples - std::floor(samples), i);
  }
  std::ranges::sort(remainders, std::greater());
  int64_t left = Turns::kLongest - std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
  for (size_t i = 0; left > 0; ++i, --left) ++quotas[remainders[i % remainders.size()].second];
  return quotas;
}

}  // namespace

Turns::Turns(const std::vector<double>& weights) {
  if (weights.empty()) throw ConfigError("a mixture of no sources");
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) throw ConfigError(text("holds ", weight, ": must be above 0"));
    sum += weight;
  }
  std::vector<double> shares;
  for (const double weight : weights) {
    shares.push_back(weight / sum);
    if (shares.back() * kLongest < 1)
      throw ConfigError(text("holds ", weight, " of a sum of ", sum, ": less than one sample in ", kLongest));
  }
  quotas_ = exact_quotas(shares);
  if (quotas_.empty()) quotas_ = nearest_quotas(shares);
  const int64_t period = std::accumulate(quotas_.begin(), quotas_.end(), int64_t{0});
  const auto k = static_cast<int64_t>(quotas_.size()), slack = std::max<int64_t>(1, 2 * k - 2);
  std::vector<int64_t> had(quotas_.size());
  // At its n-th sample a source is behind by n quota - had period, in parts of a sample; of those that are behind by 1 / slack or
  // more it is the turn of the one that would first be behind by more than 1 - 1 / slack.
  for (int64_t n = 1; n <= period; ++n) {
    size_t best = quotas_.size();
    const auto room = [&](size_t i) { return (slack - 1) * period - slack * (n * quotas_[i] - had[i] * period); };
    for (size_t i = 0; i < quotas_.size(); ++i) {
      if (slack * (n * quotas_[i] - had[i] * period) < period) continue;
      if (best == quotas_.size() || room(i) * quotas_[best] < room(best) * quotas_[i]) best = i;
    }
    require(best < quotas_.size(), text("nobody's turn among ", k, " sources"));
    order_.push_back({static_cast<uint32_t>(best), static_cast<uint32_t>(had[best]++)});
  }
}

Turns::Turn Turns::at(int64_t sample) const {
  const auto [source, before] = order_[static_cast<size_t>(sample % period())];
  return {source, sample / period() * quotas_[source] + before};
}

int64_t Turns::count(size_t source, int64_t samples) const {
  const auto end = order_.begin() + samples % period();
  return samples / period() * quotas_[source] +
         std::count_if(order_.begin(), end, [&](const Place& place) { return place.source == source; });
}

}  // namespace trireme
