// Ranks that are slow are named, and others are not, under noise as machines have it.
#include "train/health/stragglers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/clock.h"
#include "test/catch.h"
#include "train/health/core_rate.h"

namespace trireme {
namespace {

constexpr double kDefaultRatio = 1.07;  // train.straggler_ratio
constexpr double kStepWork = 0.5;       // seconds of work

// Windows of made-up ranks. Each rank has a lasting difference of 1 %, each step noise of 5 %, and one step in fifty takes up to
// half as long again.
class NoisyRanks {
 public:
  NoisyRanks(uint64_t seed, size_t ranks) : random_(seed), lasting_(ranks) {
    for (double& factor : lasting_) factor = 1 + 0.01 * normal_(random_);
  }
  std::vector<RankWork> window() {
    std::vector<RankWork> work(lasting_.size());
    for (size_t rank = 0; rank < work.size(); ++rank) {
      std::strcpy(work[rank].host.data(), ("node-" + std::to_string(rank / 4)).c_str());
      for (float& seconds : work[rank].busy) seconds = static_cast<float>(step(rank));
      for (const float seconds : work[rank].busy) work[rank].seconds += seconds;
      work[rank].on_core = work[rank].seconds;
      work[rank].parts = {0.3F * work[rank].seconds, 0.6F * work[rank].seconds, 0.1F * work[rank].seconds, 0, 0};
    }
    return work;
  }
  void slow(size_t rank, double factor) { lasting_[rank] = factor; }

 private:
  double step(size_t rank) {
    const double rare = uniform_(random_) < 0.02 ? 1 + 0.5 * uniform_(random_) : 1;
    return kStepWork * lasting_[rank] * std::exp(0.05 * normal_(random_)) * rare;
  }
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::vector<double> lasting_;
};

std::vector<RankWork> quiet_ranks(size_t count) {
  NoisyRanks ranks(7, count);
  return ranks.window();
}

void lengthen(RankWork& work, double factor) {
  for (float& seconds : work.busy) seconds *= static_cast<float>(factor);
}

LinkTime link_of(const char* along, int32_t from, int32_t to, bool message, double megabytes_per_second) {
  LinkTime link{.from = from, .to = to, .message = message ? 1 : 0};
  std::strcpy(link.along.data(), along);
  link.bytes = 1e6F, link.seconds = static_cast<float>(1 / megabytes_per_second);
  return link;
}

void give(RankWork& work, const LinkTime& link) { work.link[static_cast<size_t>(work.links++)] = link; }

}  // namespace

TEST_CASE("one of eight ranks that is slower by 20 or 10 % is named within 64 steps, with each of a hundred seeds") {
  for (const double factor : {1.2, 1.1}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      CAPTURE(factor, seed);
      const auto rank = static_cast<size_t>(seed % 8);
      NoisyRanks ranks(seed, 8);
      ranks.window();
      ranks.slow(rank, factor);
      std::optional<Straggler> found;
      for (int window = 0; window < 2 && !found; ++window) found = find_straggler(ranks.window(), kDefaultRatio);
      REQUIRE(found);
      CHECK(found->rank == static_cast<int64_t>(rank));
      CHECK(found->peers == 7);
      CHECK(found->ratio == Approx(factor).margin(0.1));
    }
  }
}

TEST_CASE("a thousand minutes of quiet ranks have no straggler") {
  for (const size_t count : {2, 4, 8, 64}) {
    CAPTURE(count);
    const double minutes_of_window = static_cast<double>(count) * RankWork::kSteps * kStepWork / 60;
    NoisyRanks ranks(count, count);
    int64_t named = 0;
    for (double minutes = 0; minutes < 1000; minutes += minutes_of_window)
      named += find_straggler(ranks.window(), kDefaultRatio) ? 1 : 0;
    CHECK(named == 0);
  }
}

TEST_CASE("a pipeline stage with more work is not a straggler, and a slow rank is compared with its own stage") {
  std::vector<RankWork> ranks = quiet_ranks(8);
  for (size_t rank = 4; rank < 8; ++rank) ranks[rank].stage = 1, lengthen(ranks[rank], 1.5);
  CHECK(!find_straggler(ranks, kDefaultRatio));
  lengthen(ranks[2], 1.3);
  const std::optional<Straggler> found = find_straggler(ranks, kDefaultRatio);
  REQUIRE(found);
  CHECK(found->rank == 2);
  CHECK(found->peers == 3);
}

TEST_CASE("ranks without peers have no straggler, and of two ranks the slow one is named") {
  std::vector<RankWork> ranks = quiet_ranks(2);
  ranks[1].stage = 1;
  lengthen(ranks[1], 2);
  CHECK(!find_straggler(ranks, kDefaultRatio));
  CHECK(relative_work(ranks) == std::vector<double>{1, 1});
  ranks[1].stage = 0;
  const std::optional<Straggler> found = find_straggler(ranks, kDefaultRatio);
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK_THAT(found->words, ContainsSubstring("longer than its peer, "));
}

TEST_CASE("all ranks of a slow node are slow: the slowest of them is named") {
  std::vector<RankWork> ranks = quiet_ranks(64);
  for (size_t rank = 8; rank < 12; ++rank) lengthen(ranks[rank], 1.2);
  const std::optional<Straggler> found = find_straggler(ranks, kDefaultRatio);
  REQUIRE(found);
  CHECK(found->host == "node-2");
}

TEST_CASE("a rank that is slow in a few steps only is not a straggler") {
  std::vector<RankWork> ranks = quiet_ranks(8);
  for (size_t s = 0; s < RankWork::kSteps / 2; ++s) ranks[3].busy[s] *= 3;
  CHECK(!find_straggler(ranks, kDefaultRatio));
}

TEST_CASE("the words on a straggler name the part of its work and what its machine says") {
  const auto words = [](auto change) {
    std::vector<RankWork> ranks = quiet_ranks(4);
    lengthen(ranks[3], 1.2);
    ranks[3].parts[static_cast<size_t>(WorkPart::backward)] *= 1.3F;
    for (RankWork& work : ranks) work.machine.clock_ghz = 3, work.machine.core_rate = 3e9F;
    change(ranks[3]);
    const std::optional<Straggler> found = find_straggler(ranks, kDefaultRatio);
    REQUIRE(found);
    return found->words;
  };
  const std::string plain = words([](RankWork&) {});
  CHECK_THAT(plain, Catch::Matchers::StartsWith("rank 3 (node-0) computes ") &&
                        Catch::Matchers::EndsWith(" % longer than its 3 peers, backward most"));
  CHECK_THAT(words([](RankWork& w) { w.parts[static_cast<size_t>(WorkPart::data)] = w.seconds; }),
             Catch::Matchers::EndsWith("as it waits for its data: look at the disk of its shards"));
  CHECK_THAT(words([](RankWork& w) { w.on_core *= 0.85F; }), Catch::Matchers::EndsWith(": it had no core for 15 % of that time"));
  CHECK_THAT(words([](RankWork& w) { w.on_core *= 0.5F, w.shares_cores = 1; }), Catch::Matchers::EndsWith("backward most"));
  CHECK_THAT(words([](RankWork& w) { w.machine.stolen = 0.12F; }),
             Catch::Matchers::EndsWith(": its virtual machine's host took 12 % of its processor time"));
  CHECK_THAT(words([](RankWork& w) { w.machine.clock_ghz = 1.2F, w.machine.throttles = 4; }),
             Catch::Matchers::EndsWith(
                 ": its cores run at 1.20 GHz, others at 3.00, its processor was slowed 4 times because it was too hot"));
  CHECK_THAT(words([](RankWork& w) { w.machine.core_rate = 2e9F; }),
             Catch::Matchers::EndsWith(
                 ": an empty loop takes 50 % longer on its cores: others use them too, such as another virtual machine"));
  CHECK_THAT(words([](RankWork& w) { w.machine.disk_faults = 500; }),
             Catch::Matchers::EndsWith(": 500 page faults read its disk: memory is short"));
}

TEST_CASE("a rank that had a slower core is not a straggler where ranks share cores, and is where they do not") {
  std::vector<RankWork> ranks = quiet_ranks(8);
  for (RankWork& work : ranks) work.machine.core_rate = 3e9F;
  lengthen(ranks[5], 1.2);
  for (const bool shared : {false, true}) {
    for (RankWork& work : ranks) work.shares_cores = shared ? 1 : 0;
    CAPTURE(shared);
    ranks[5].machine.core_rate = 2.9e9F;
    CHECK(find_straggler(ranks, kDefaultRatio));
    ranks[5].machine.core_rate = 2.2e9F;
    CHECK(find_straggler(ranks, kDefaultRatio).has_value() == !shared);
  }
}

TEST_CASE("a core's rate is one turn of an empty loop in a cycle or a few") {
  double best = 0;
  for (int i = 0; i < 100; ++i) best = std::max(best, core_rate());
  CHECK(best > 1e8);
  CHECK(best < 2e10);
}

TEST_CASE("a link that is slower than others of its kind is named by both ends") {
  std::vector<RankWork> ranks = quiet_ranks(4);
  for (int32_t from = 0; from < 3; ++from) {
    const double rate = from == 1 ? 20 : 100;
    give(ranks[static_cast<size_t>(from)],
         link_of("pp", from, from + 1, true, rate / 3));  // the sender also waits for the receiver
    give(ranks[static_cast<size_t>(from) + 1], link_of("pp", from, from + 1, true, rate));
    give(ranks[static_cast<size_t>(from)], link_of("dp", 0, 3, false, 10));  // one group: nothing to compare it with
  }
  const std::vector<std::string> lines = slow_links(ranks);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "the link from rank 1 (node-0) to rank 2 (node-0), pp: 20.0 MB/s at best, usual are 100.0 MB/s");
}

TEST_CASE("the work of 16,384 ranks is judged within a second") {
  std::vector<RankWork> ranks = quiet_ranks(16384);
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].stage = static_cast<int64_t>(rank % 16);
  for (size_t rank = 4096; rank < 4224; ++rank) lengthen(ranks[rank], 1.15);
  lengthen(ranks[9001], 1.4);
  const auto begin = Clock::now();
  const std::optional<Straggler> found = find_straggler(ranks, kDefaultRatio);
  const double seconds = seconds_since(begin);
  REQUIRE(found);
  CHECK(found->rank == 9001);
  CHECK(found->peers == 1023);
  CHECK(seconds < 1);
}

}  // namespace trireme
