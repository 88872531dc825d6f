// Judgement of machines from made-up measurements: what condemns a host, what is a warning, and what a busy machine may show.
#include "train/health/fabric_findings.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/philox.h"
#include "test/catch.h"
#include "train/health/tournament.h"

namespace trireme {
namespace {

// So many hosts of `each` ranks, without a fault, whose rates scatter by 3 %, and links of so many rounds of the tournament.
FabricFacts sound_machines(int64_t hosts, int64_t each, uint64_t seed, bool gpu = true) {
  FabricFacts facts;
  uint64_t drawn = 0;
  const auto scatter = [&] { return 1 - 0.03 * static_cast<double>(philox64(seed, ++drawn) % 1000) / 1000; };
  const int64_t ranks = hosts * each;
  for (int64_t r = 0; r < ranks; ++r) {
    MachineFacts m;
    m.host = "host-" + std::to_string(r / each), m.kind = gpu ? "H100" : "Zen 4, 8 threads", m.program = "version 1 with digest a";
    m.libraries = "libmpi.so.40 libnccl.so.2", m.gpu = gpu, m.product_bits = "0123", m.products_checked = 400;
    m.products = 6e14 * scatter(), m.products_spread = 0.01, m.copies = 3e12 * scatter(), m.copies_spread = 0.02;
    m.memory_bytes = 1 << 30, m.clock_ahead = 1e-3 * scatter(), m.clock_margin = 1e-4;
    m.disk_rate = r % each == 0 ? 2e9 * scatter() : 0, m.disk_free = 1e13;
    facts.ranks.push_back(m);
  }
  const std::vector<int64_t> rounds = spread_rounds(ranks);
  for (size_t i = 0; i < rounds.size() && i < 48; ++i)
    for (int64_t r = 0; r < ranks; ++r)
      if (const int64_t peer = opponent(r, ranks, rounds[i]); r < peer)
        facts.links.push_back(
            {.from = r, .to = peer, .bytes = 1 << 20, .rate = (r / each == peer / each ? 2e11 : 2e10) * scatter()});
  for (int64_t r = 0; r < ranks; r += 8)
    facts.sums.push_back({.axis = "tp", .first = r, .size = 8, .bytes = 1 << 24, .rate = 1e11 * scatter()});
  facts.directory = "runs", facts.disk_need = 1e12;
  return facts;
}

FabricFinding only_finding(const FabricFacts& facts) {
  const std::vector<FabricFinding> found = judge_fabric(facts);
  for (const FabricFinding& each : found) INFO(describe(each));
  REQUIRE(found.size() == 1);
  return found.front();
}

}  // namespace

TEST_CASE("each pair of ranks meets once, and every rank is busy in every round") {
  for (const int64_t ranks : {2, 3, 4, 5, 8, 9, 64, 65}) {
    std::set<std::pair<int64_t, int64_t>> met;
    CHECK(tournament_rounds(ranks) == (ranks % 2 == 0 ? ranks - 1 : ranks));
    for (int64_t round = 0; round < tournament_rounds(ranks); ++round) {
      int64_t resting = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t other = opponent(r, ranks, round);
        resting += other < 0;
        if (other < 0) continue;
        REQUIRE((other < ranks && other != r && opponent(other, ranks, round) == r));
        met.insert({std::min(r, other), std::max(r, other)});
      }
      CHECK(resting == ranks % 2);
    }
    CHECK(std::ssize(met) == ranks * (ranks - 1) / 2);
    const std::vector<int64_t> order = spread_rounds(ranks);
    CHECK(std::set<int64_t>(order.begin(), order.end()).size() == order.size());
    CHECK(std::ssize(order) == tournament_rounds(ranks));
  }
  CHECK(opponent(0, 1, 0) == -1);
  CHECK(spread_rounds(1).empty());
}

TEST_CASE("sound machines have no findings, whatever the draw, up to 1024 ranks") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CHECK(judge_fabric(sound_machines(1, 1, seed)).empty());
    CHECK(judge_fabric(sound_machines(1, 4, seed, false)).empty());
    CHECK(judge_fabric(sound_machines(8, 8, seed)).empty());
  }
  CHECK(judge_fabric(sound_machines(128, 8, 1)).empty());
}

TEST_CASE("a fault among 1024 ranks is found alone, with its host") {
  const auto with = [](const std::function<void(MachineFacts&)>& fault, const char* check, bool condemns) {
    FabricFacts facts = sound_machines(128, 8, 7);
    fault(facts.ranks[501]);
    const FabricFinding found = only_finding(facts);
    CHECK(found.check == check);
    CHECK(found.ranks == std::vector<int64_t>{501});
    CHECK(found.hosts == std::vector<std::string>{"host-62"});
    CHECK(found.condemns == condemns);
    CHECK_THAT(describe(found), ContainsSubstring("host-62"));
    CHECK(condemned_hosts({found}).empty() != condemns);
  };
  with([](MachineFacts& m) { m.product_bits = "0122"; }, "product bits", true);
  with([](MachineFacts& m) { m.products_differ = 1; }, "product bits", true);
  with([](MachineFacts& m) { m.memory_errors = 1; }, "memory", true);
  with([](MachineFacts& m) { m.products *= 0.9; }, "products", true);
  with([](MachineFacts& m) { m.copies *= 0.8; }, "copies", true);
  with([](MachineFacts& m) { m.program = "version 1 with digest b"; }, "program", true);
  with([](MachineFacts& m) { m.libraries = "libmpi.so.40 libnccl.so.3"; }, "libraries", true);
  with([](MachineFacts& m) { m.disk_free = 1e11; }, "disk space", true);
  with([](MachineFacts& m) { m.disk_problem = "runs: Read-only file system"; }, "disk", true);
  with([](MachineFacts& m) { m.clock_ahead = -0.5; }, "clock", false);
}

TEST_CASE("a rank of which most links are slow condemns its host, and a slow link names both ends") {
  FabricFacts facts = sound_machines(16, 1, 3);
  for (LinkFacts& link : facts.links)
    if (link.from == 5 || link.to == 5) link.rate *= 0.3;
  const FabricFinding host = only_finding(facts);
  CHECK(host.hosts == std::vector<std::string>{"host-5"});
  CHECK(host.condemns);
  CHECK_THAT(describe(host), ContainsSubstring("15 of its 15 links are slow"));

  facts = sound_machines(16, 1, 3);
  for (LinkFacts& link : facts.links)
    if (link.from == 2 && link.to == 9) link.rate *= 0.3;
  const FabricFinding pair = only_finding(facts);
  CHECK(pair.ranks == std::vector<int64_t>{2, 9});
  CHECK(pair.hosts == std::vector<std::string>{"host-2", "host-9"});
  CHECK_FALSE(pair.condemns);
  REQUIRE(slow_links(facts).size() == 1);
  CHECK(slow_links(facts).front().to == 9);

  facts = sound_machines(1, 4, 3);
  for (LinkFacts& link : facts.links)
    if (link.from == 1 && link.to == 3) link.rate *= 0.3;
  const FabricFinding inside = only_finding(facts);
  CHECK(inside.ranks == std::vector<int64_t>{1, 3});
  CHECK(inside.condemns);
  for (MachineFacts& m : facts.ranks) m.shares_cores = true;
  CHECK(judge_fabric(facts).empty());
  for (LinkFacts& link : facts.links)
    if (link.from == 1 && link.to == 3) link.rate *= 0.3;
  CHECK(only_finding(facts).ranks == std::vector<int64_t>{1, 3});
  CHECK(sound_rate(facts, facts.links.front()) == Approx(0.2 * 2e11).epsilon(0.03));
}

TEST_CASE("links between hosts are compared with each other, and those within a host likewise") {
  FabricFacts facts = sound_machines(8, 8, 5);
  for (LinkFacts& link : facts.links)  // all links of a host's ranks to others, from which its own do not suffer
    if (link.from / 8 != link.to / 8 && (link.from / 8 == 4 || link.to / 8 == 4)) link.rate *= 0.4;
  const FabricFinding host = only_finding(facts);
  CHECK(host.hosts == std::vector<std::string>{"host-4"});
  CHECK(host.condemns);
}

TEST_CASE("products of two ranks that differ blame nobody but a host that has both") {
  FabricFacts two = sound_machines(2, 1, 1);
  two.ranks[1].product_bits = "0122";
  CHECK_FALSE(only_finding(two).condemns);
  FabricFacts one = sound_machines(1, 2, 1);
  one.ranks[1].product_bits = "0122";
  CHECK(only_finding(one).condemns);
  one.ranks[1].products_differ = 3;  // it contradicts itself: the other is right
  CHECK(only_finding(one).ranks == std::vector<int64_t>{1});
  FabricFacts kinds = sound_machines(2, 1, 1);  // other processors may have other bits
  kinds.ranks[1].product_bits = "0122", kinds.ranks[1].kind = "H200", kinds.ranks[1].products *= 0.5;
  CHECK(judge_fabric(kinds).empty());
}

TEST_CASE("rates of ranks that share cores, or whose windows disagree, have a wider tolerance") {
  FabricFacts facts = sound_machines(1, 4, 1, false);
  facts.ranks[2].products *= 0.7;
  CHECK(slow_ranks(facts) == std::vector<int64_t>{2});
  CHECK(only_finding(facts).condemns);
  facts.ranks[2].products_spread = 0.2;
  CHECK(judge_fabric(facts).empty());
  facts.ranks[2].products_spread = 0;
  for (MachineFacts& m : facts.ranks) m.shares_cores = true;
  CHECK(judge_fabric(facts).empty());
  facts.ranks[2].products *= 0.4;  // 28 % is slow on any machine
  facts.ranks[2].products_spread = 0.9;
  CHECK(only_finding(facts).ranks == std::vector<int64_t>{2});
  CHECK_FALSE(only_finding(facts).condemns);  // its neighbours may be the cause
}

TEST_CASE("a shared disk that is full condemns no host, and a full disk of the only host does") {
  FabricFacts shared = sound_machines(4, 1, 1);
  for (MachineFacts& m : shared.ranks) m.disk_free = 5e11;
  const std::vector<FabricFinding> found = judge_fabric(shared);
  CHECK(found.size() == 4);
  CHECK(condemned_hosts(found).empty());
  FabricFacts only = sound_machines(1, 4, 1);
  only.ranks[2].disk_free = 1 << 20, only.disk_need = 0;
  CHECK(condemned_hosts({only_finding(only)}) == std::vector<std::string>{"host-0"});
}

TEST_CASE("of equally many programs the one of rank 0 counts") {
  FabricFacts facts = sound_machines(2, 1, 1);
  facts.ranks[1].program = "version 2";
  const FabricFinding found = only_finding(facts);
  CHECK(found.hosts == std::vector<std::string>{"host-1"});
  CHECK_THAT(found.problem, ContainsSubstring("2 instead of 1 a digest with"));
}

TEST_CASE("a slow group of an all_reduce, a slow disk and measurements sent as JSON keep their numbers") {
  FabricFacts facts = sound_machines(8, 8, 2);
  facts.sums[3].rate *= 0.4;
  const FabricFinding group = only_finding(facts);
  CHECK(group.check == "all_reduce");
  CHECK_FALSE(group.condemns);
  facts.sums[3].rate /= 0.4;
  facts.ranks[16].disk_rate *= 0.1;
  CHECK(only_finding(facts).hosts == std::vector<std::string>{"host-2"});
  const MachineFacts sent = facts_of_json<MachineFacts>(Json::parse(json_of_facts(facts.ranks[16]).dump()));
  CHECK(json_of_facts(sent).dump() == json_of_facts(facts.ranks[16]).dump());
  CHECK(sent.products == facts.ranks[16].products);
  CHECK(sent.memory_bytes == facts.ranks[16].memory_bytes);
}

}  // namespace trireme
