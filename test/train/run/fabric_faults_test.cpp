// Four ranks of the program with a fault of one machine: `doctor --fabric` and a start with train.check_start name it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <utility>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// A fault of one rank's machine while it lives: see test/interposer/faulty_machine.cpp.
class FaultyMachine {
 public:
  FaultyMachine(const char* kind, const char* rank, const char* peer = "-1") {
    setenv("LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_machine.so", 1);
    setenv("FAULTY_MACHINE", kind, 1), setenv("FAULTY_RANK", rank, 1), setenv("FAULTY_PEER", peer, 1);
  }
  ~FaultyMachine() {
    for (const char* name : {"LD_PRELOAD", "FAULTY_MACHINE", "FAULTY_RANK", "FAULTY_PEER"}) unsetenv(name);
  }
  FaultyMachine(const FaultyMachine&) = delete;
  FaultyMachine& operator=(const FaultyMachine&) = delete;
};

struct Checked {
  int code;
  std::string out;
  Json json;
  std::set<std::string> checks() const {  // of findings that condemn
    std::set<std::string> names;
    for (const Json& finding : json["findings"])
      if (finding["condemns"] == true) names.insert(finding["check"].string());
    return names;
  }
  const Json& finding(const std::string& check) const {
    for (const Json& finding : json["findings"])
      if (finding["check"] == check) return finding;
    FAIL("no finding of " << check << " in " << out);
    throw std::runtime_error("no finding");
  }
};

Checked check_four(const Scratch& scratch, const std::vector<std::string>& more = {}) {
  const std::string to = "found.json";
  std::vector<std::string> words{"doctor", "--fabric", "--json", to};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = Process(scratch.path(), words, 4).wait();
  INFO(ended.err);
  REQUIRE((ended.code == 0 || ended.code == 76));
  return {.code = ended.code, .out = ended.out, .json = Json::parse(read_text(scratch / to))};
}

}  // namespace

TEST_CASE("four sound ranks are fit: a table, no findings, and the seconds", "[unsanitized]") {
  const Scratch scratch;
  const Checked checked = check_four(scratch);
  INFO(checked.out);
  CHECK(checked.code == 0);
  CHECK(checked.checks().empty());
  CHECK(checked.json["fit"] == true);
  CHECK(checked.json["ranks"].size() == 4);
  CHECK(checked.json["links"].size() >= 6);
  CHECK_THAT(checked.out, ContainsSubstring("4 ranks on 1 host: fit") && ContainsSubstring("checked in "));
  CHECK_THAT(checked.out, !ContainsSubstring("not fit"));
}

TEST_CASE("a rank with a flipped bit in its products is named, also if it flips now and then", "[unsanitized]") {
  const Workplace place;
  for (const char* kind : {"bits", "late_bits"}) {
    // Our own products, since faults hit teams of threads: oneDNN's on one thread are none, and then only the factors would differ.
    const FaultyMachine faulty(kind, "2");
    const Checked checked =
        check_four(place.scratch, {"config.yaml", "--set", "kernels.products=ours", "--set", "train.microbatch=1"});
    INFO(kind << "\n" << checked.out);
    CHECK(checked.code == 76);
    CHECK(checked.finding("product bits")["ranks"][0] == 2);
    CHECK(checked.json["condemned_hosts"].size() == 1);
    CHECK_THAT(checked.out, ContainsSubstring("not fit: rank 2 on ") && ContainsSubstring("silent data corruption"));
    // Factors are made once: products of them differ from each other only if the fault reaches products.
    const bool late = kind == std::string("late_bits");
    for (const Json& rank : checked.json["ranks"])
      CHECK((rank["products_differ"].get<int64_t>() > 0) == (late && rank["rank"] == 2));
    CHECK_THAT(checked.finding("product bits")["problem"].string(),
               ContainsSubstring(late ? " equal products had other bits than its first" : "a product with other bits than most"));
  }
}

TEST_CASE("a slowed link is named by both of its ends", "[unsanitized]") {
  const Scratch scratch;
  const FaultyMachine faulty("link", "1", "3");
  const Checked checked = check_four(scratch);
  INFO(checked.out);
  CHECK(checked.code == 76);
  const Json& link = checked.finding("link");
  CHECK(link["ranks"][0] == 1);
  CHECK(link["ranks"][1] == 3);
  CHECK_THAT(checked.out, ContainsSubstring("the link between rank 1 on ") && ContainsSubstring(" and rank 3 on "));
}

TEST_CASE("a full disk and a clock that is ahead are named, the clock as a warning", "[unsanitized]") {
  const Scratch scratch;
  {
    const FaultyMachine faulty("disk", "3");
    const Checked checked = check_four(scratch);
    INFO(checked.out);
    CHECK(checked.code == 76);
    CHECK(checked.finding("disk space")["ranks"][0] == 3);
    CHECK_THAT(checked.out, ContainsSubstring("not fit: rank 3 on ") && ContainsSubstring("runs has 1 MiB free"));
  }
  const FaultyMachine faulty("clock", "1");
  const Checked checked = check_four(scratch);
  INFO(checked.out);
  CHECK(checked.finding("clock")["ranks"][0] == 1);
  CHECK(checked.finding("clock")["condemns"] == false);
}

TEST_CASE("a host with another program is named", "[unsanitized]") {
  const Scratch scratch;
  const std::string other = scratch / "trireme";
  std::filesystem::copy_file(TRIREME_BUILD "/trireme", other);
  std::ofstream(other, std::ios::app) << "x";
  const FaultyMachine faulty("host", "3");
  const std::vector<std::string> check{"doctor", "--fabric", "--json", "found.json"};
  std::vector<std::string> words{"--oversubscribe", "-n", "3", TRIREME_BUILD "/trireme"};
  words.insert(words.end(), check.begin(), check.end());
  words.insert(words.end(), {":", "-n", "1", other});
  words.insert(words.end(), check.begin(), check.end());
  const Ended ended = Process(scratch.path(), words, 1, "mpirun").wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 76);
  CHECK_THAT(ended.out, ContainsSubstring("not fit: rank 3 on other-host has another program than most ranks"));
  CHECK_THAT(ended.out, ContainsSubstring("4 ranks on 2 hosts: not fit: other-host, checked in "));
  CHECK(Json::parse(read_text(scratch / "found.json"))["condemned_hosts"][0] == "other-host");
}

TEST_CASE("a start with check_start names the unfit host in exit.json before the first step", "[unsanitized]") {
  const Workplace place;
  {
    // Faults hit teams of threads, which oneDNN's products on one thread are not.
    const FaultyMachine faulty("late_bits", "1");
    const Ended ended = place.train({"train.check_start=true", "kernels.products=ours"}, 2);
    INFO(ended.err);
    CHECK(ended.code == 76);
    CHECK_THAT(ended.err, ContainsSubstring("not fit for this run: ") && ContainsSubstring("silent data corruption"));
    const Json exit = Json::parse(place.run("tiny", "exit.json"));
    CHECK(exit["code"] == 76);
    CHECK(exit["cause"] == "machine");
    CHECK(exit["rank"] == 1);
    CHECK(exit["host"].string().size() > 0);
    CHECK_THAT(exit["message"].string(), ContainsSubstring("rank 1 on " + exit["host"].string()));
    CHECK_FALSE(std::filesystem::exists(place.scratch / "runs/tiny/metrics.jsonl"));
  }
  const Ended ended = place.train({"train.check_start=true"}, 2);
  succeed(ended);
  CHECK(place.lines("tiny") >= 20);
  CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("machines: 2 ranks on 1 host: fit"));
  succeed(place.train({"train.name=unchecked"}, 2));
  CHECK(place.differ("tiny", "unchecked") == 0);  // the check changes no bit of the run
}

TEST_CASE("bench fabric prints what nccl-tests does, and all elements are right", "[unsanitized]") {
  const Scratch scratch;
  const Ended ended =
      Process(scratch.path(), {"bench", "fabric", "--least", "4KiB", "--most", "64KiB", "--seconds", "0.01", "--json", "b.json"}, 3)
          .wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("algbw") && ContainsSubstring("reduce_scatter"));
  const Json json = Json::parse(read_text(scratch / "b.json"));
  CHECK(json["rates"].size() == 12);
  for (const Json& rate : json["rates"]) {
    CHECK(rate["wrong_elements"] == 0);
    CHECK(rate["bytes"].get<int64_t>() % 12 == 0);
    const double factor = rate["op"] == "all_reduce" ? 4.0 / 3 : rate["op"] == "send_receive" ? 1 : 2.0 / 3;
    CHECK(rate["bus_bytes_per_second"].get<double>() == Approx(factor * rate["algorithm_bytes_per_second"].get<double>()));
  }
}

}  // namespace trireme
