// Attempts at a run: which end it, which are followed by another, and that a supervised run gets to its end through kills.
#include "train/run/supervise.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/json.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/launched_training.h"

namespace trireme {
namespace {

Attempt attempt(int code, int64_t first, int64_t last, int64_t step = 7, int64_t rank = 2) {
  Attempt attempt;
  attempt.code = code;
  attempt.cause = "error", attempt.host = "n1";
  attempt.rank = rank, attempt.step = step;
  attempt.first_checkpoint = first, attempt.last_checkpoint = last;
  return attempt;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<Json> attempts_of(const Workplace& place) {
  std::vector<Json> attempts;
  std::istringstream in(place.run("tiny", "attempts.jsonl"));
  for (std::string line; std::getline(in, line);) attempts.push_back(Json::parse(line));
  return attempts;
}

}  // namespace

TEST_CASE("what would happen again is not tried again, what ended in order is not either, and all else is") {
  using enum Next::Kind;
  CHECK(next_after({attempt(0, -1, 20)}, 10).kind == done);
  CHECK(next_after({attempt(75, -1, 20)}, 10).kind == stopped);
  for (const int code : {2, 3, 4, 72, 126, 127}) CHECK(next_after({attempt(code, 20, 20)}, 10).kind == give_up);
  for (const int code : {72, 126, 127}) CHECK(next_after({attempt(code, -1, 20)}, 10).kind == give_up);
  for (const int code : {3, 4}) {  // a read may have failed once, but not twice in the same way
    CHECK(next_after({attempt(code, -1, 20)}, 10).kind == restart);
    CHECK(next_after({attempt(code, -1, 20), attempt(code, 20, 40)}, 10).kind == give_up);
    Attempt other = attempt(code, 20, 40);
    other.message = "another page";
    CHECK(next_after({attempt(code, -1, 20), other}, 10).kind == restart);
    Attempt third = attempt(code, 40, 60);
    third.message = "a third page";
    CHECK(next_after({attempt(code, -1, 20), other, third}, 10).kind == give_up);
  }
  CHECK(next_after({attempt(137, -1, 20), attempt(2, 20, 20)}, 10).kind == restart);  // the lock may not have been free yet
  CHECK(next_after({attempt(137, -1, 20), attempt(2, 20, 20)}, 10).delay == 5);
  CHECK(next_after({attempt(137, -1, 20), attempt(2, 20, 20), attempt(2, 20, 20)}, 10).kind == give_up);
  CHECK(next_after({attempt(137, -1, 20), attempt(72, 20, 20)}, 10).kind == give_up);
  for (const int code : {1, 70, 71, 134, 137, 139}) CHECK(next_after({attempt(code, -1, 20)}, 10).kind == restart);
}

TEST_CASE("a crash loop is recognised: three attempts with the same end and without a new checkpoint") {
  using enum Next::Kind;
  const Attempt same = attempt(70, 5, 5);
  CHECK(next_after({same}, 10).delay == 0);
  CHECK_FALSE(next_after({same}, 10).fewer);
  CHECK(next_after({same, same}, 10).kind == restart);
  CHECK(next_after({same, same}, 10).fewer);
  CHECK(next_after({same, same}, 10).delay == 1);
  const Next loop = next_after({same, same, same}, 10);
  CHECK(loop.kind == give_up);
  CHECK_THAT(loop.why, ContainsSubstring("after step 7 on rank 2 (n1)") && ContainsSubstring("crash loop"));
  CHECK(next_after({same, same, attempt(70, 5, 5, 8)}, 10).kind == restart);     // another step
  CHECK(next_after({same, same, attempt(70, 5, 5, 7, 1)}, 10).kind == restart);  // another rank
  CHECK(next_after({same, same, attempt(70, 5, 10), attempt(70, 10, 10)}, 10).kind == restart);
  CHECK(next_after({same, same, attempt(70, 5, 10), attempt(70, 10, 10)}, 10).delay == 0);
}

TEST_CASE("restarts in a row without a new checkpoint are counted, and come later and later") {
  using enum Next::Kind;
  std::vector<Attempt> attempts;
  for (int64_t i = 0; i < 4; ++i) attempts.push_back(attempt(137, 5, 5, i));
  CHECK(next_after(attempts, 4).kind == restart);
  CHECK(next_after(attempts, 4).delay == 4);
  CHECK(next_after(attempts, 3).kind == give_up);
  for (int64_t i = 4; i < 12; ++i) attempts.push_back(attempt(137, 5, 5, i));
  CHECK(next_after(attempts, 100).delay == 60);
  CHECK(next_after({attempt(137, 5, 5)}, 0).kind == give_up);
}

TEST_CASE("a command is taken apart: its launcher, its ranks, its config and settings") {
  for (const std::string ranks : {"-n 8", "-np 8", "--np 8", "--ntasks=8", "-x A=1 -n 8 --bind-to none"}) {
    const LaunchedTraining training =
        take_apart(words_of("/usr/bin/mpirun " + ranks + " build/trireme train a.yaml --set train.name=x"));
    CHECK(training.ranks == 8);
    CHECK(training.by_mpirun);
    CHECK(training.config == "a.yaml");
    CHECK(training.set == std::vector<std::string>{"train.name=x"});
    const LaunchedTraining fewer = training.with(6, "--set parallel.tp=2 --set train.microbatch=1");
    CHECK(take_apart(fewer.words).ranks == 6);
    CHECK(take_apart(fewer.words).set == std::vector<std::string>{"train.name=x", "parallel.tp=2", "train.microbatch=1"});
  }
  CHECK(take_apart(words_of("trireme train --set=train.name=y --resume auto a.yaml")).config == "a.yaml");
  CHECK(take_apart(words_of("trireme train --set=train.name=y --resume auto a.yaml")).set ==
        std::vector<std::string>{"train.name=y"});
  for (const std::string resume : {"--resume never ", "--resume=runs/old ", ""})
    CHECK(take_apart(words_of("mpirun -n 2 trireme train a.yaml " + resume + "--set a=b")).from_newest().words ==
          words_of("mpirun -n 2 trireme train a.yaml --set a=b"));
  CHECK_FALSE(take_apart(words_of("srun -n 8 trireme train a.yaml")).by_mpirun);
  CHECK_FALSE(take_apart(words_of("trireme train a.yaml")).ranks_at);
  CHECK_THROWS_WITH(take_apart(words_of("mpirun -n 8 trireme")), ContainsSubstring("starts no training"));
  CHECK_THROWS_WITH(take_apart(words_of("mpirun -n 8 trireme train --set a=b")), ContainsSubstring("is given no config"));
}

TEST_CASE("a supervised run that is killed again and again ends with the bits of an undisturbed one", "[unsanitized]") {
  const Workplace place;
  succeed(place.train({"train.steps=400", "train.name=whole", "train.eval_every=0"}));
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  std::vector<std::string> words{"supervise", "--", program};
  for (const std::string& word : Workplace::arguments({"train.steps=400", "train.eval_every=0"})) words.push_back(word);
  Process supervisor(place.scratch.path(), words);
  int kills = 0;
  for (int64_t lines = 40; lines <= 240; lines += 100) {
    while (supervisor.running() && place.lines("tiny") < lines) usleep(500);
    for (const pid_t child : supervisor.children()) kills += kill(child, SIGKILL) == 0;
    usleep(50000);
  }
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(kills == 3);
  CHECK(place.metrics("tiny") == place.metrics("whole"));
  CHECK(place.differ("whole", "tiny") == 0);
  const std::vector<Json> attempts = attempts_of(place);
  REQUIRE(attempts.size() == 4);
  for (size_t i = 0; i < 3; ++i) CHECK(attempts[i].at("code") == 137);
  CHECK(attempts.back().at("code") == 0);
  CHECK(attempts.back().at("last_checkpoint") == 400);
  CHECK_THAT(ended.err,
             ContainsSubstring("supervise: attempt 1 ended with 137") && ContainsSubstring("attempt 2 continues from step"));
}

TEST_CASE("a launcher that stays when its ranks have gone is ended, and the run continues", "[unsanitized]") {
  const Workplace place;
  // The first time it waits for ever, its child dead.
  write_text(place.scratch / "mpirun",
             "#!/bin/sh\nif mkdir tried; then sleep 0.2 & exec tail -f /dev/null; fi\nshift 2\nexec \"$@\"\n");
  std::filesystem::permissions(place.scratch / "mpirun", std::filesystem::perms::owner_all);
  std::vector<std::string> words{"supervise", "--", "./mpirun", "-n", "1", std::string(TRIREME_BUILD) + "/trireme"};
  for (const std::string& word : Workplace::arguments({})) words.push_back(word);
  const Ended ended = run_trireme(place.scratch.path(), words);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("the launcher hangs although its ranks have ended") &&
                            ContainsSubstring("attempt 1 ended with 137"));
}

TEST_CASE("a launcher that hangs before it starts a rank is ended once it was asked to stop", "[unsanitized]") {
  const Workplace place;
  write_text(place.scratch / "mpirun", "#!/bin/sh\ntrap '' USR1\n> begun\nexec tail -f /dev/null\n");
  std::filesystem::permissions(place.scratch / "mpirun", std::filesystem::perms::owner_all);
  Process supervisor(place.scratch.path(),
                     {"supervise", "--", "./mpirun", "-n", "1", std::string(TRIREME_BUILD) + "/trireme", "train", "config.yaml"});
  while (supervisor.running() && !std::filesystem::exists(place.scratch / "begun")) usleep(1000);
  supervisor.signal(SIGTERM);
  const Ended ended = supervisor.wait();
  INFO(ended.err);
  CHECK(ended.code == 75);
  CHECK_THAT(ended.err, ContainsSubstring("the launcher hangs before it has started a rank"));
}

TEST_CASE("a run that is given up ends with the code of its last attempt, and with no words on memory", "[unsanitized]") {
  const Workplace place;
  write_text(place.scratch / "mpirun", "#!/bin/sh\nkill -KILL $$\n");
  std::filesystem::permissions(place.scratch / "mpirun", std::filesystem::perms::owner_all);
  const Ended ended =
      run_trireme(place.scratch.path(), {"supervise", "--", "./mpirun", "-n", "1", "trireme", "train", "config.yaml"});
  INFO(ended.err);
  CHECK(ended.code == 137);
  CHECK_THAT(ended.err, ContainsSubstring("gave up: 3 attempts in a row") && !ContainsSubstring("memory"));
}

TEST_CASE("a supervised run that is asked to stop saves and ends with 75, and a supervisor that is killed takes all along",
          "[unsanitized]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  std::vector<std::string> words{"supervise", "--max-restarts", "3", "--", "mpirun", "--oversubscribe", "-n", "2", program};
  for (const std::string& word : Workplace::arguments({"train.steps=100000", "train.eval_every=0"})) words.push_back(word);
  for (const int signal : {SIGTERM, SIGKILL}) {
    Process supervisor(place.scratch.path(), words);
    std::map<int, pid_t> ranks;
    while (supervisor.running() && ranks.size() < 2) ranks = launched_ranks(place.scratch.path()), usleep(1000);
    const int64_t before = signal == SIGTERM ? 0 : place.lines("tiny");
    while (supervisor.running() && place.lines("tiny") < before + 20) usleep(1000);
    supervisor.signal(signal);
    const Ended ended = supervisor.wait();
    INFO(ended.err);
    CHECK(ended.code == (signal == SIGTERM ? 75 : 128 + SIGKILL));
    for (int wait = 0; wait < 300 && any_alive(ranks); ++wait) usleep(10000);
    CHECK_FALSE(any_alive(ranks));
    if (signal == SIGKILL) continue;
    const Json exit = Json::parse(place.run("tiny", "exit.json"));
    CHECK(exit.at("code") == 75);
    CHECK(exit.at("step") == place.metrics("tiny").back().at("step"));
    REQUIRE_FALSE(attempts_of(place).empty());
    CHECK(attempts_of(place).back().at("last_checkpoint") == exit.at("step"));
  }
}

TEST_CASE("with --elastic a rank that fails twice at the same place is left out, on the largest mesh that fits", "[unsanitized]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme", runs = place.scratch.path();
  // Fails with three ranks; with two, which divide the batch of four, starts the real mpirun.
  write_text(
      place.scratch / "mpirun",
      "#!/bin/sh\nif [ \"$2\" -ge 3 ]; then mkdir -p runs/tiny; echo '{\"cause\": \"error\", \"rank\": 2}' > runs/tiny/next; mv "
      "runs/tiny/next runs/tiny/exit.json; exit 70; fi\nexec /usr/bin/env mpirun --oversubscribe \"$@\"\n");
  std::filesystem::permissions(place.scratch / "mpirun", std::filesystem::perms::owner_all);
  std::vector<std::string> words{"supervise", "--elastic", "--", place.scratch / "mpirun", "-n", "4", program};
  for (const std::string& word : Workplace::arguments({"train.microbatch=1"})) words.push_back(word);
  const Ended ended = Process(place.scratch.path(), words, 1, program).wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("continues with 2 ranks instead of 4"));
  REQUIRE_FALSE(attempts_of(place).empty());
  CHECK(attempts_of(place).back().at("ranks") == 2);
}

namespace {

using Seconds = std::chrono::duration<double>;

// Seconds from the death of one of eight ranks until: all are gone and the supervisor knows; the new ones run; they have the state
// back; their first step is done.
std::array<double, 4> time_restart(const std::vector<std::string>& settings) {
  const Workplace place;
  std::vector<std::string> words{
      "supervise", "--", "mpirun", "--oversubscribe", "-n", "8", std::string(TRIREME_BUILD) + "/trireme"};
  std::vector<std::string> all{"train.steps=1000000", "train.batch=8", "train.microbatch=1", "train.eval_every=0"};
  all.insert(all.end(), settings.begin(), settings.end());
  for (const std::string& word : Workplace::arguments(all)) words.push_back(word);
  Process supervisor(place.scratch.path(), words);
  while (supervisor.running() && place.lines("tiny") < 120) usleep(1000);
  const std::map<int, pid_t> before = launched_ranks(place.scratch.path());
  REQUIRE(before.size() == 8);
  const auto begin = std::chrono::steady_clock::now();
  kill(before.at(3), SIGKILL);
  const auto until = [&](const auto& happened) {
    while (supervisor.running() && !happened()) usleep(1000);
    return Seconds(std::chrono::steady_clock::now() - begin).count();
  };
  const auto log = [&] { return place.run("tiny", "log.txt"); };
  std::array<double, 4> times{};
  times[0] = until([&] { return attempts_of(place).size() == 1; });
  CHECK_FALSE(any_alive(before));
  times[1] = until([&] { return launched_ranks(place.scratch.path()).size() == 8; });
  times[2] = until([&] { return log().find("resumed after step") != std::string::npos; });
  times[3] = until([&] { return log().find("  step ", log().rfind("resumed after step")) != std::string::npos; });
  supervisor.signal(SIGTERM);
  CHECK(supervisor.wait().code == 75);
  return times;
}

}  // namespace

TEST_CASE("from a kill to the first new step of eight ranks", "[.][soak]") {
  for (const auto& [tier, settings, limit] : std::vector<std::tuple<std::string, std::vector<std::string>, double>>{
           {"disk", {"checkpoint.every=50"}, 5}, {"memory", {"checkpoint.every=0", "checkpoint.memory_every=50"}, 2.5}})
    for (int round = 0; round < 5; ++round) {
      const std::array<double, 4> t = time_restart(settings);
      WARN("from " << tier << ": noticed after " << t[0] << " s, started after " << t[1] << " s, state back after " << t[2]
                   << " s, first step after " << t[3] << " s");
      CHECK(t[3] < limit);
    }
}

}  // namespace trireme
