// The program from the outside: training, stopping, killing, resuming, memory, and a source whose entropy is known.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "base/json.h"
#include "base/philox.h"
#include "checkpoint/lineage.h"
#include "checkpoint/memory_tier.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/workplace.h"
#include "train/step/plan.h"

namespace trireme {

TEST_CASE("a run continues from its only checkpoint, renamed, that --resume names") {
  const Workplace place;
  succeed(place.train({"checkpoint.every=20"}));
  const std::filesystem::path checkpoints = place.scratch / "runs/tiny/checkpoints";
  std::filesystem::rename(checkpoints / "step-00000020", checkpoints / "good");
  std::vector<std::string> words = Workplace::arguments({"train.steps=22"});
  words.insert(words.end(), {"--resume", "runs/tiny/checkpoints/good"});
  succeed(run_trireme(place.scratch.path(), words));
  CHECK(place.lines("tiny") > 20);
}

TEST_CASE("a small model learns a Markov source to within 2 % of its entropy", "[unsanitized]") {
  const Workplace place;
  succeed(place.train({"train.steps=300", "train.batch=16", "train.microbatch=16", "train.eval_sequences=0", "train.eval_every=300",
                       "checkpoint.every=0"}));
  const double loss = place.metrics("tiny").back().at("val_loss").get<double>();
  CHECK(loss == Approx(kEntropy).epsilon(0.02));
}

TEST_CASE("ten steps, save, resume in a new process, ten steps equal twenty steps to the bit") {
  const Workplace place;
  for (const auto& [dtype, rounding] :
       {std::pair("f32", "nearest"), std::pair("bf16", "nearest"), std::pair("bf16", "stochastic")}) {
    const std::string suffix = std::string(dtype) + "-" + rounding, whole = "whole-" + suffix, parts = "parts-" + suffix;
    const std::vector<std::string> settings{"kernels.dtype=" + std::string(dtype), "train.rounding=" + std::string(rounding),
                                            "train.schedule=constant"};
    const auto train = [&](const std::string& name, const std::string& steps) {
      std::vector<std::string> all = settings;
      all.insert(all.end(), {"train.name=" + name, "train.steps=" + steps});
      succeed(place.train(all));
    };
    train(whole, "20");
    train(parts, "10");
    CHECK(place.metrics(parts).size() == 11);  // ten steps and an evaluation
    CHECK(place.differ(whole, parts) != 0);
    train(parts, "20");
    CHECK(place.metrics(parts) == place.metrics(whole));
    CHECK(place.differ(whole, parts) == 0);
  }
  CHECK(place.metrics("whole-bf16-stochastic") != place.metrics("whole-bf16-nearest"));
}

TEST_CASE("a run that is asked to stop saves, exits with 75 and continues to the same bits") {
  const Workplace place;
  succeed(place.train({"train.steps=150", "train.name=whole"}));
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    if (kSanitized && signal != SIGUSR1) continue;
    const std::string name = "stopped-" + std::to_string(signal);
    Process first(place.scratch.path(), Workplace::arguments({"train.steps=150", "train.name=" + name}));
    while (first.running() && place.lines(name) < 30) usleep(500);
    first.signal(signal);
    const Ended ended = first.wait();
    INFO(ended.err);
    CHECK(ended.code == 75);
    CHECK(Json::parse(place.run(name, "exit.json")).at("code") == 75);
    succeed(place.train({"train.steps=150", "train.name=" + name}));
    CHECK(Json::parse(place.run(name, "exit.json")).at("code") == 0);
    CHECK(place.metrics(name) == place.metrics("whole"));
    CHECK(place.differ("whole", name) == 0);
  }
}

TEST_CASE("a run killed at random moments, also during saves, continues to the same bits") {
  const Workplace place;
  const std::vector<std::string> often{"train.steps=60", "checkpoint.every=1"};
  auto with = [&](const std::string& name) {
    auto all = often;
    all.push_back("train.name=" + name);
    return all;
  };
  succeed(place.train(with("whole")));
  int kills = 0;
  for (uint64_t attempt = 0; attempt < 40; ++attempt) {
    Process process(place.scratch.path(), Workplace::arguments(with("killed")));
    usleep(static_cast<useconds_t>(20000 + philox64(7, attempt) % 120000));
    const bool running = process.running();
    process.signal(SIGKILL);
    const Ended ended = process.wait();
    kills += running;
    if (!running) {
      INFO(ended.err);
      REQUIRE(ended.code == 0);
      break;
    }
  }
  succeed(place.train(with("killed")));
  CHECK(kills > 0);
  CHECK(place.metrics("killed") == place.metrics("whole"));
  CHECK(place.differ("whole", "killed") == 0);
}

TEST_CASE("a run that is killed continues from what it has saved in memory, to the same bits") {
  if (!std::filesystem::is_directory("/dev/shm")) {
    WARN("skipped: no /dev/shm");
    return;
  }
  const Workplace place;
  const std::vector<std::string> settings{kSanitized ? "train.steps=300" : "train.steps=800", "checkpoint.every=0",
                                          "checkpoint.memory_every=3", "train.eval_every=0"};
  const auto named = [&](const std::string& name) {
    auto all = settings;
    all.push_back("train.name=" + name);
    return all;
  };
  succeed(place.train(named("whole")));
  Process first(place.scratch.path(), Workplace::arguments(named("killed")));
  // Saves run in the background: on a busy machine the first takes a long time.
  const std::string run = place.scratch / "runs/killed";
  while (first.running() && (place.lines("killed") < 60 || newest_in_memory(run) < 0)) usleep(500);
  first.signal(SIGKILL);
  CHECK(first.wait().code == 128 + SIGKILL);
  const Ended second = place.train(named("killed"));
  succeed(second);
  CHECK_THAT(second.out, ContainsSubstring("resumed after step "));
  CHECK(place.metrics("killed") == place.metrics("whole"));
  CHECK(place.differ("whole", "killed") == 0);
}

TEST_CASE("a run that is finished says so and changes nothing") {
  const Workplace place;
  succeed(place.train({}));
  const std::string before = place.run("tiny", "metrics.jsonl");
  succeed(place.train({}));
  CHECK(place.run("tiny", "metrics.jsonl") == before);
}

TEST_CASE("the resolved config in the run directory repeats the run") {
  const Workplace place;
  succeed(place.train({}));
  write_text(place.scratch / "again.yaml", place.run("tiny", "config.yaml"));
  succeed(run_trireme(place.scratch.path(), {"train", "again.yaml", "--set", "train.name=again"}));
  CHECK(place.metrics("again") == place.metrics("tiny"));
}

TEST_CASE("a resume with another model or other data is refused unless it is allowed") {
  const Workplace place;
  succeed(place.train({}));
  const Ended refused = place.train({"model.theta=20000", "train.seed=2", "train.steps=22"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             ContainsSubstring("model.theta") && ContainsSubstring("train.seed") && ContainsSubstring("--resume-allow"));
  auto allowed = Workplace::arguments({"model.theta=20000", "train.seed=2", "train.steps=22"});
  allowed.push_back("--resume-allow");
  succeed(run_trireme(place.scratch.path(), allowed));
  CHECK(place.metrics("tiny").back().at("step") == 22);
}

TEST_CASE("a run that continues with another batch and context counts the tokens of the steps before as they were") {
  const Workplace place;
  succeed(place.train({}));
  const auto tokens_after = [&](int64_t step) {
    auto words = Workplace::arguments({"train.batch=6", "model.context=32", "train.steps=" + std::to_string(step)});
    words.push_back("--resume-allow");
    succeed(run_trireme(place.scratch.path(), words));
    std::vector<Json> lines = place.metrics("tiny");
    std::erase_if(lines, [](const Json& line) { return !line.contains("loss"); });
    CHECK(lines.back().at("step") == step);
    const auto tokens = lines.back().at("tokens").get<int64_t>();
    const LineageText lineage = read_lineage(Io(), lineage_path(place.scratch / "runs/tiny"));
    REQUIRE_FALSE(lineage.commits.empty());
    CHECK(lineage.commits.back().tokens == tokens);
    return tokens;
  };
  CHECK(tokens_after(22) == 20 * 256 + 2 * 192);
  CHECK(tokens_after(25) == 20 * 256 + 5 * 192);  // from a checkpoint of such steps
}

TEST_CASE("a resume with products of other numbers is refused, and with another word for the same ones is not") {
  const Workplace place;
  const auto go_on = [&](const std::string& matmul, const std::string& steps) {
    return place.train({"kernels.dtype=bf16", "kernels.matmul=" + matmul, "train.warmup=1", "train.steps=" + steps});
  };
  succeed(go_on("auto", "2"));
  const Ended refused = go_on("fp8", "3");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("kernels.matmul: products in bf16 -> fp8 but for 0 layers at each end"));
  succeed(go_on("bf16", "3"));
}

TEST_CASE("peak resident memory is within 10 % of the plan's total and the copy for checkpoints", "[unsanitized]") {
  const Workplace place;
  // Without fast bf16 instructions, f32 copies of the operands add to the memory.
  CpuFacts facts = read_cpu_facts();
  facts.products = ProductKernels::automatic;
  const std::string dtype = facts.gains_by_bf16() ? "kernels.dtype=bf16" : "kernels.dtype=f32";
  const std::vector<std::string> settings{
      "train.steps=2",          "train.warmup=1",    "train.batch=2",     "train.microbatch=2", "model.width=768",
      "model.heads=12",         "model.layers=4",    "model.vocab=32000", "model.context=64",   dtype,
      "train.eval_sequences=2", "checkpoint.every=0"};
  const RunConfig config = read_config(place.scratch / "config.yaml", settings);
  const Plan plan = make_plan(config, Mesh());
  const double total = static_cast<double>(plan.sizes.total() + plan.copy);
  const Ended ended = place.train(settings);
  succeed(ended);
  INFO("plan " << total << ", resident " << ended.peak_bytes);
  CHECK(static_cast<double>(ended.peak_bytes) == Approx(total).epsilon(0.10));
}

TEST_CASE("a run draws from several sources by weight, reports each, and continues only with the same ones") {
  const Workplace place;
  const std::vector<std::string> settings{"train.name=mix", "data.train=[shards/train-00000.h5, shards/validation-00000.h5]",
                                          "data.weights=[3, 1]"};
  const auto with = [&](const std::vector<std::string>& more) {
    auto all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Ended whole = place.train(settings);
  succeed(whole);
  CHECK_THAT(whole.out, ContainsSubstring("shards/train-00000.h5: 75.00 % of the samples, 0.0"));
  CHECK_THAT(whole.out, ContainsSubstring("shards/validation-00000.h5: 25.00 % of the samples, 0.0"));
  succeed(place.train(with({"train.name=parts", "train.steps=10", "train.schedule=constant"})));
  succeed(place.train(with({"train.name=straight", "train.schedule=constant"}), 2));
  succeed(place.train(with({"train.name=parts", "train.schedule=constant"}), 2));
  const auto losses = [&](const std::string& name) {
    std::vector<double> all;
    for (const auto& line : place.metrics(name))
      if (line.contains("loss")) all.push_back(line.at("loss"));
    return all;
  };
  const auto straight = losses("straight"), parts = losses("parts");
  REQUIRE(straight.size() == 20);
  REQUIRE(parts.size() == 20);
  for (size_t i = 0; i < straight.size(); ++i) CHECK(parts[i] == Approx(straight[i]).epsilon(1e-5));
  const Ended other = place.train(with({"data.weights=[1, 1]"}));
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("data.weights: [3, 1] -> [1, 1]: the checkpoint belongs to another run"));
  const Ended three = place.train(with({"train.name=three", "data.weights=[1, 1, 1]"}));
  CHECK(three.code == 2);
  CHECK_THAT(three.err, ContainsSubstring("data.weights") && ContainsSubstring("must have one number per entry of data.train: 2"));
}

}  // namespace trireme
