#include "data/loader/mixture_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace trireme {

namespace {

// Parts of kPeriod: what is lost by rounding down goes to the largest remainders.
std::vector<int64_t> nearest_shares(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double samples = weights[i] / sum * MixtureSchedule::kPeriod;
    if (samples < 1)
      throw ConfigError(text("holds ", weights[i], " of a sum of ", sum, ": less than one sample in ", MixtureSchedule::kPeriod));
    shares.push_back(static_cast<int64_t>(samples + 1e-6));  // 0.3 is a little less than three tenths
    remainders.emplace_back(samples - static_cast<double>(shares.back()), i);
  }
  std::ranges::sort(remainders, std::greater());
  const int64_t left = MixtureSchedule::kPeriod - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  require(left >= 0 && left <= std::ssize(shares), text(left, " samples of a mixture are nobody's"));
  for (size_t i = 0; i < static_cast<size_t>(left); ++i) ++shares[remainders[i].second];
  return shares;
}

// So many turns of each, spread evenly: at its n-th sample one lags by n quota - had, in parts of a sample; of those that
// lag by 1 / slack or more it is the turn of the one that would first lag by more than 1 - 1 / slack.
std::vector<uint32_t> spread(const std::vector<int64_t>& quotas) {
  const int64_t length = std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
  const int64_t slack = std::max<int64_t>(1, 2 * std::ssize(quotas) - 2);
  std::vector<int64_t> had(quotas.size());
  std::vector<uint32_t> order;
  for (int64_t n = 1; n <= length; ++n) {
    size_t best = quotas.size();
    const auto room = [&](size_t i) { return (slack - 1) * length - slack * (n * quotas[i] - had[i] * length); };
    for (size_t i = 0; i < quotas.size(); ++i) {
      if (slack * (n * quotas[i] - had[i] * length) < length) continue;
      if (best == quotas.size() || room(i) * quotas[best] < room(best) * quotas[i]) best = i;
    }
    require(best < quotas.size(), text("nobody's turn among ", quotas.size(), " sources"));
    ++had[best];
    order.push_back(static_cast<uint32_t>(best));
  }
  return order;
}

// Those of a sorted list that are not in the other.
std::vector<uint32_t> without(const std::vector<uint32_t>& these, const std::vector<uint32_t>& others) {
  std::vector<uint32_t> left;
  std::ranges::set_difference(these, others, std::back_inserter(left));
  return left;
}

}  // namespace

MixtureSchedule::MixtureSchedule(const std::vector<double>& weights) {
  if (weights.empty()) throw ConfigError("a mixture of no sources");
  for (const double weight : weights)
    if (!(weight > 0) || !std::isfinite(weight)) throw ConfigError(text("holds ", weight, ": must be above 0"));
  shares_ = nearest_shares(weights);
  arrange();
  choose();
}

void MixtureSchedule::arrange() {
  std::vector<int64_t> quotas;
  for (const int64_t share : shares_) quotas.push_back(share / kBlocks);
  const auto sources = static_cast<uint32_t>(quotas.size());
  quotas.push_back(kBlock - std::accumulate(quotas.begin(), quotas.end(), int64_t{0}));
  order_ = spread(quotas);
  uint32_t seat = sources;
  for (uint32_t& place : order_)
    if (place == sources) place = seat++;
}

void MixtureSchedule::choose() {
  constexpr int64_t kStride = 2531;  // odd, and about kBlocks over the golden ratio: the points of successive blocks lie far apart
  had_.assign(1, std::vector<uint32_t>(shares_.size()));
  std::vector<uint32_t> before, seats;  // those of the block before, sorted, and where they sit
  for (int64_t block = 0; block <= kBlocks; ++block) {
    std::vector<uint32_t> chosen;  // whose part of the line of all remainders holds a point, one point every kBlocks
    int64_t end = 0, point = block % kBlocks * kStride % kBlocks;
    for (size_t i = 0; i < shares_.size(); ++i) {
      end += shares_[i] % kBlocks;
      if (point < end) chosen.push_back(static_cast<uint32_t>(i)), point += kBlocks;
    }
    if (block == 0) seats = chosen;
    const std::vector<uint32_t> go = without(before, chosen), come = without(chosen, before);
    for (size_t i = 0; i < go.size(); ++i) *std::ranges::find(seats, go[i]) = come[i];
    before = chosen;
    if (block == kBlocks) break;
    seated_.push_back(seats);
    had_.push_back(had_.back());
    for (const uint32_t source : chosen) ++had_.back()[source];
  }
  for (const uint32_t source : seated_.front())
    moves_.push_back(static_cast<size_t>(std::ranges::find(seats, source) - seats.begin()));
}

size_t MixtureSchedule::moved(size_t seat, int64_t periods) const {
  int64_t cycle = 1;
  for (size_t at = moves_[seat]; at != seat; at = moves_[at]) ++cycle;
  for (int64_t i = periods % cycle; i > 0; --i) seat = moves_[seat];
  return seat;
}

MixtureSchedule::Turn MixtureSchedule::at(int64_t sample) const {
  if (shares_.size() == 1) return {0, sample};
  size_t source = order_[static_cast<size_t>(sample % kBlock)];
  if (source >= shares_.size()) {
    const std::vector<uint32_t>& seated = seated_[static_cast<size_t>(sample / kBlock % kBlocks)];
    const size_t wanted = source - shares_.size();
    size_t seat = 0;
    while (moved(seat, sample / kPeriod) != wanted) ++seat;
    source = seated[seat];
  }
  return {source, count(source, sample)};
}

int64_t MixtureSchedule::sample_of(const Turn& turn) const {
  // The last sample in front of which the source has had no more than `number`.
  int64_t low = turn.number / shares_[turn.source] * kPeriod, high = low + kPeriod;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (count(turn.source, middle) <= turn.number ? low : high) = middle;
  }
  return low;
}

int64_t MixtureSchedule::count(size_t source, int64_t samples) const {
  const int64_t block = samples / kBlock;
  const auto in_period = static_cast<size_t>(block % kBlocks);
  const std::vector<uint32_t>& seated = seated_[in_period];
  uint32_t extra = ~0u;  // as order_ names its seat
  if (const auto found = std::ranges::find(seated, source); found != seated.end())
    extra = static_cast<uint32_t>(shares_.size() + moved(static_cast<size_t>(found - seated.begin()), samples / kPeriod));
  const auto here = std::count_if(order_.begin(), order_.begin() + samples % kBlock,
                                  [&](uint32_t place) { return place == source || place == extra; });
  return samples / kPeriod * shares_[source] + static_cast<int64_t>(in_period) * (shares_[source] / kBlocks) +
         had_[in_period][source] + here;
}

}  // namespace trireme
