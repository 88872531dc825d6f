// Steps whose loss or gradients are not finite, or stand out: skipped, rolled back, or the end of the run; named, and never saved.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "kernels/finite.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/step_statistics.h"
#include "train/run/trainer.h"

namespace trireme {
namespace {

constexpr int64_t kBadStep = 8, kLateStep = 48;  // counted from 1

// Makes one number of a rank's work this one, in a bad step: each time, or `once`.
struct Poison {
  std::string where;  // "gradient", "late" (the same, in another step), "flaky" (later another number), "stream" or "state"
  float number;
  int64_t rank, microbatch;
  bool once;
  bool done = false;
  int times = 0, steps = 0;

  static void put(const Tensor& x, float number) {
    if (x.dtype() == Dtype::f32)
      x.as<float>()[x.size() / 2] = number;
    else
      x.as<Bf16>()[x.size() / 2] = Bf16(number);
  }
  bool now(const TrainState& run, const Microbatch& batch, const std::string& place) {
    const bool late = where == "late" && place == "gradient", flaky = where == "flaky" && place == "gradient";
    if ((where != place && !late && !flaky) || run.mesh.all().rank() != rank || (done && once)) return false;
    if (run.step + 1 != (late ? kLateStep : kBadStep)) return false;
    return place == "state" || batch.number == microbatch;
  }
  void into(TrainState& run) {
    run.hooks.write = [this, &run, write = run.hooks.write](size_t unit, const Microbatch& batch) {
      write(unit, batch);
      for (const Parameter& parameter : run.stage.parameters())
        if (parameter.unit == unit && parameter.spec.name == "layers.1.mlp_norm.gain" && now(run, batch, "gradient"))
          put(parameter.gradient, where == "flaky" && times++ > 0 ? static_cast<float>(times) : number), done = true;
    };
    run.hooks.read = [this, &run, read = run.hooks.read](size_t unit, const Microbatch& batch) {
      read(unit, batch);
      const UnitId& id = run.stage.units()[unit].id;
      if (id.kind == UnitKind::block && id.begin == 0 && now(run, batch, "stream"))
        put(run.stage.incoming({}), number), done = true;
      if (id.kind == UnitKind::block && now(run, batch, "state")) put(run.optimizer.slices().front().local, number), done = true;
    };
    // Every second step of this rank lingers while its communication lane sums what it has sent.
    run.hooks.done = [this, &run, done = run.hooks.done](size_t unit, const Microbatch& batch) {
      done(unit, batch);
      if (where == "state" && run.mesh.all().rank() == 0 && run.stage.units()[unit].id.kind == UnitKind::table && steps++ % 2 == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
  }
};

Ended train_poisoned(const Workplace& place, int ranks, const std::string& poison, const std::vector<std::string>& settings) {
  return train_inside(place, "a run with a bad step", ranks, poison, settings);
}

std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// Lines of steps and evaluations, but for these steps' and their events.
std::vector<Json> without(std::vector<Json> lines, int64_t first, int64_t last) {
  std::erase_if(lines, [&](const Json& line) {
    return (line.contains("loss") || line.contains("event")) && first <= line.at("step") && line.at("step") <= last;
  });
  return lines;
}

Json event_of(int64_t step, const std::string& event) { return {{"step", step}, {"event", event}, {"since", step}}; }

const std::vector<std::string> kSettings{"model.layers=2", "train.microbatch=1", "checkpoint.every=5"};

}  // namespace

TEST_CASE("a run with a bad step", "[.launched]") {
  World world;
  const auto [config, change] = inside_run(world);
  std::istringstream words(change);
  Poison poison{};
  std::string number;
  words >> poison.where >> number >> poison.rank >> poison.microbatch >> poison.once;
  poison.number = std::stof(number);
  // A new run, that finds no checkpoints at its start.
  CHECK(train(config, world, {.from = "never"}, [&](TrainState& run) { poison.into(run); }) == ExitCode::done);
}

TEST_CASE("a step that is not finite on one rank and microbatch is skipped by all, named, and leaves what a run without it has",
          "[unsanitized]") {
  struct Case {
    std::string mesh, poison, named;
    int ranks;
  };
  for (const Case& c :
       {Case{"parallel.dp=1", "gradient nan 0 2 0", "microbatch 2: the gradient of layers.1.mlp_norm.gain", 1},
        Case{"parallel.dp=2", "stream inf 1 1 0", "rank 1 | dp 1 pp 0 tp 0: microbatch 1: what embedding added", 2},
        Case{"parallel.zero=2", "gradient nan 1 0 0",
             "rank 1 | dp 1 pp 0 tp 0: microbatch 0: the gradient of layers.1.mlp_norm.gain", 2},
        Case{"parallel.zero=3", "gradient -inf 1 1 0", "microbatch 1: the gradient of layers.1.mlp_norm.gain", 2},
        Case{"parallel.numerics=invariant", "gradient nan 1 1 0", "rank 1 | dp 1 pp 0 tp 0: microbatch 1: the gradient", 2},
        Case{"parallel.tp=2", "gradient nan 1 3 0", "rank 1 | dp 0 pp 0 tp 1: microbatch 3: the gradient of layers.1.mlp_norm.gain",
             2},
        Case{"parallel.pp=2", "gradient nan 1 1 0", "rank 1 | dp 0 pp 1 tp 0: microbatch 1: the gradient of layers.1.mlp_norm.gain",
             2}}) {
    INFO(c.mesh << ": " << c.poison);
    const Workplace place;
    const std::vector<std::string> settings = with(kSettings, {c.mesh});
    const Ended ended = train_poisoned(place, c.ranks, c.poison, with(settings, {"train.name=bad"}));
    INFO(ended.out << ended.err);
    REQUIRE(ended.code == 0);
    succeed(place.train(with(settings, {"train.name=without", "train.leave_out=[8]"}), c.ranks));
    const std::string log = place.run("bad", "log.txt");
    CHECK_THAT(log, ContainsSubstring("step 8: loss") && ContainsSubstring(c.named) && ContainsSubstring("the update was skipped"));
    CHECK_THAT(place.run("without", "log.txt"), ContainsSubstring("step 8: left out"));
    CHECK(without(place.metrics("bad"), kBadStep, kBadStep) == place.metrics("without"));
    CHECK(place.metrics("bad").size() == place.metrics("without").size() + 2);
    CHECK(std::ranges::count(place.metrics("bad"), event_of(kBadStep, "not_finite")) == 1);
    CHECK(place.differ("bad", "without") == 0);
    succeed(place.train(with(settings, {"train.name=whole"}), c.ranks));
    CHECK(place.differ("bad", "whole") != 0);
  }
}

TEST_CASE("a roll-back continues from the newest checkpoint without the steps since then, whatever the rounding", "[unsanitized]") {
  const Workplace place;
  for (const auto& [name, more] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"f32", {}}, {"stochastic", {"kernels.dtype=bf16", "train.rounding=stochastic", "parallel.zero=1"}}}) {
    const std::vector<std::string> settings = with(with(kSettings, more), {"train.on_bad_step=rollback"});
    const Ended ended = train_poisoned(place, 2, "gradient nan 1 1 0", with(settings, {"train.name=back-" + name}));
    INFO(ended.out << ended.err);
    REQUIRE(ended.code == 0);
    CHECK_THAT(place.run("back-" + name, "log.txt"),
               ContainsSubstring("back to the state after step 5. Steps 6 to 8 are left out"));
    succeed(place.train(with(settings, {"train.name=without-" + name, "train.leave_out=[6-8]"}), 2));
    CHECK(without(place.metrics("back-" + name), 6, 8) == place.metrics("without-" + name));
    CHECK(place.differ("back-" + name, "without-" + name) == 0);
  }
}

TEST_CASE("a roll-back without a checkpoint begins with fresh weights", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings = with(kSettings, {"train.on_bad_step=rollback", "checkpoint.every=0"});
  const Ended ended = train_poisoned(place, 2, "stream nan 0 0 0", with(settings, {"train.name=back"}));
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  succeed(place.train(with(settings, {"train.name=without", "train.leave_out=[1-3,4, 5-8]"}), 2));
  CHECK(place.differ("back", "without") == 0);
}

TEST_CASE("a gradient that stands out is a spike, and its step leaves what a run without it has", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings = with(kSettings, {"train.spike_sigmas=8", "train.schedule=constant", "train.lr=0.002"});
  const auto at = [&](const std::string& name, const std::vector<std::string>& more) {
    return with(settings, with({"train.name=" + name, "train.steps=60"}, more));
  };
  succeed(place.train(at("usual", {}), 2));
  CHECK_THAT(place.run("usual", "log.txt"), !ContainsSubstring("skipped"));
  const Ended ended = train_poisoned(place, 2, "late 1e4 1 1 0", at("spike", {}));
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  CHECK_THAT(place.run("spike", "log.txt"),
             ContainsSubstring("step 48: loss ") && ContainsSubstring("(at most ") && ContainsSubstring("the update was skipped"));
  CHECK(std::ranges::count(place.metrics("spike"), event_of(48, "spike")) == 1);
  succeed(place.train(at("without", {"train.leave_out=[48]"}), 2));
  CHECK(place.differ("spike", "without") == 0);
  CHECK(place.differ("spike", "usual") != 0);
}

TEST_CASE("ten consecutive outliers reset the spike statistics", "[unsanitized]") {
  const Workplace place;
  const Ended ended = place.train({"train.name=rising", "train.spike_sigmas=0.001", "train.schedule=constant", "train.steps=100"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  CHECK_THAT(place.run("rising", "log.txt"), ContainsSubstring("10 consecutive outlier steps: resetting spike statistics"));
}

TEST_CASE("a model that has diverged to zero gradients is reported once, with the remedy and an event", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.lr=300", "train.warmup=0", "train.schedule=constant", "checkpoint.every=1"};
  succeed(place.train(with(settings, {"train.name=whole", "train.steps=7"})));
  const std::string log = place.run("whole", "log.txt");
  const size_t at = log.find("warning: gradients are zero since step ");
  REQUIRE(at != std::string::npos);
  CHECK(log.find("gradients are zero", at + 20) == std::string::npos);
  const std::string step(1, log[at + std::string("warning: gradients are zero since step ").size()]);
  CHECK_THAT(log, ContainsSubstring("warning: gradients are zero since step " + step +
                                    ": the model has diverged (lr 300). Stop it, lower train.lr or lengthen train.warmup, and "
                                    "begin again under another train.name, or with --resume from a checkpoint before step " +
                                    step + "\n"));
  const Json event{{"step", std::stoll(step) + 2}, {"event", "zero_gradients"}, {"since", std::stoll(step)}};
  const std::vector<Json> lines = place.metrics("whole");
  CHECK(std::ranges::count(lines, event) == 1);
  // A resume between the steps that count knows how many there were.
  for (const std::string& steps : {step, std::string("7")})
    succeed(place.train(with(settings, {"train.name=parts", "train.steps=" + steps, "train.eval_every=0"})));
  const std::vector<Json> parts = place.metrics("parts");
  CHECK(std::ranges::count(parts, event) == 1);
}

TEST_CASE("a bad step ends the run where that is asked for, with 72 and the weights before it", "[unsanitized]") {
  const Workplace place;
  const Ended ended =
      train_poisoned(place, 2, "gradient nan 1 0 0", with(kSettings, {"train.name=stop", "train.on_bad_step=stop"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 72);
  CHECK_THAT(ended.err, ContainsSubstring("step 8: loss") &&
                            ContainsSubstring("rank 1 | dp 1 pp 0 tp 0: microbatch 0: the gradient of") &&
                            ContainsSubstring("the weights are those of step 7"));
}

TEST_CASE("hardware is accused only when equal inputs give other bits, and the rank is named that differs from itself",
          "[unsanitized]") {
  const Workplace place;
  const Ended once = train_poisoned(place, 2, "gradient nan 1 0 1", with(kSettings, {"train.name=once"}));
  INFO(once.err);
  REQUIRE(once.code == 0);
  CHECK_THAT(place.run("once", "log.txt"),
             ContainsSubstring("computed again from equal inputs it has other bits (loss ") &&
                 ContainsSubstring("a processor or memory is at fault, once: no rank shows it again"));
  const Ended flaky = train_poisoned(place, 2, "flaky nan 1 0 0", with(kSettings, {"train.name=flaky"}));
  INFO(flaky.err);
  REQUIRE(flaky.code == 0);
  CHECK_THAT(place.run("flaky", "log.txt"), ContainsSubstring("at fault, that of rank 1 | dp 1 pp 0 tp 0 on " + host_name() +
                                                              ", which computes other bits each time"));
}

TEST_CASE("weights drawn by stochastic rounding are drawn again for the comparison, so a fault of the model accuses nobody",
          "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings = with(kSettings, {"kernels.dtype=bf16", "train.rounding=stochastic", "train.clip=0",
                                                             "train.name=stochastic", "train.leave_out=[7]"});
  const Ended ended = train_poisoned(place, 2, "gradient 3e38 1 1 0", settings);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  CHECK_THAT(place.run("stochastic", "log.txt"),
             ContainsSubstring("the model has diverged: the update was skipped") && !ContainsSubstring("at fault"));
}

TEST_CASE("a finite gradient whose squares overflow is clipped, or without clipping named as diverged", "[unsanitized]") {
  const Workplace place;
  for (const char* numerics : {"fast", "invariant"}) {
    const std::string name = std::string("large-") + numerics;
    const std::vector<std::string> settings = with(kSettings, {"train.name=" + name, std::string("parallel.numerics=") + numerics});
    const Ended clipped = train_poisoned(place, 2, "gradient 3e38 1 1 0", settings);
    INFO(clipped.err);
    REQUIRE(clipped.code == 0);
    CHECK_THAT(place.run(name, "log.txt"), !ContainsSubstring("skipped"));
    double largest = 0;
    for (const Json& line : place.metrics(name))
      if (line.contains("grad_norm")) largest = std::max<double>(largest, line.at("grad_norm"));
    CHECK(largest == Approx(3e38).epsilon(0.01));
  }
  for (const auto& [policy, code] : {std::pair("skip", 0), std::pair("rollback", 0), std::pair("stop", 72)}) {
    CAPTURE(policy);
    const std::string name = std::string("unclipped-") + policy;
    const Ended ended =
        train_poisoned(place, 2, "gradient 3e38 1 1 0",
                       with(kSettings, {"train.name=" + name, "train.clip=0", std::string("train.on_bad_step=") + policy}));
    INFO(ended.out << ended.err);
    CHECK(ended.code == code);
    const std::string said = place.run(name, "log.txt") + ended.err;
    CHECK_THAT(said, ContainsSubstring("gradient norm 3e+38: finite elements, too large for an update: the model has diverged") &&
                         !ContainsSubstring("at fault"));
  }
}

TEST_CASE("weights that are not finite are never saved, and end the run", "[unsanitized]") {
  const Workplace place;
  const Ended ended = train_poisoned(place, 2, "state nan 1 0 1", with(kSettings, {"train.name=ill", "train.steps=40"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 72);
  const std::string log = place.run("ill", "log.txt");
  CHECK_THAT(log,
             ContainsSubstring("rank 1 | dp 1 pp 0 tp 0: its own ") && ContainsSubstring("warning: no checkpoint of step 10: "));
  CHECK_THAT(log, ContainsSubstring("NaN or infinite"));
  const Ended listed = run_trireme(place.scratch.path(), {"checkpoint", "list", "runs/ill"});
  CHECK_THAT(listed.out, ContainsSubstring("step 5 ") && !ContainsSubstring("step 10"));
}

TEST_CASE("a replica whose state has changed in silence is found and named before the next save", "[unsanitized]") {
  struct Case {
    std::string mesh;
    int ranks;
    std::string named;
  };
  const Workplace place;
  for (const Case& c : {Case{"parallel.dp=2", 2, "rank 0 | dp 0 pp 0 tp 0 and rank 1 | dp 1 pp 0 tp 0 differ in embedding.tokens"},
                        Case{"parallel.dp=3", 3, "rank 1 | dp 1 pp 0 tp 0 differs from the other replicas in embedding.tokens"}}) {
    INFO(c.mesh);
    const std::string name = "drift-" + std::to_string(c.ranks);
    const std::vector<std::string> settings =
        with(kSettings, {c.mesh, "train.batch=6", "parallel.zero=0", "train.name=" + name, "train.compare_every=5"});
    const Ended ended = train_poisoned(place, c.ranks, "state 42 1 0 1", settings);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 70);
    CHECK_THAT(ended.err, ContainsSubstring("replicas diverged after step 10: " + c.named) &&
                              ContainsSubstring("the step computed twice has equal bits on every rank, so memory changed once"));
    const Ended listed = run_trireme(place.scratch.path(), {"checkpoint", "list", "runs/" + name});
    CHECK_THAT(listed.out, ContainsSubstring("step 5 ") && !ContainsSubstring("step 10"));
  }
}

TEST_CASE("equal replicas are found to be equal, whatever they hold", "[unsanitized]") {
  const Workplace place;
  for (const auto& [mesh, ranks] : std::vector<std::pair<std::vector<std::string>, int>>{
           {{"parallel.zero=0", "kernels.dtype=bf16"}, 2},
           {{"parallel.zero=1", "kernels.dtype=bf16", "train.rounding=stochastic"}, 2},
           {{"parallel.zero=2", "parallel.tp=2"}, 4},
           {{"parallel.zero=3"}, 2},
           {{"parallel.pp=2", "parallel.numerics=invariant"}, 4}}) {
    CAPTURE(mesh);
    succeed(place.train(with(with(kSettings, mesh), {"train.name=alike-" + mesh.front(), "train.compare_every=1"}), ranks));
  }
}

TEST_CASE("what is left out is resumed over, also by weights that are rounded stochastically", "[unsanitized]") {
  const Workplace place;
  const std::vector<std::string> settings{"train.leave_out=[7,11-12]", "checkpoint.every=1",        "train.schedule=constant",
                                          "kernels.dtype=bf16",        "train.rounding=stochastic", "train.spike_sigmas=5"};
  succeed(place.train(with(settings, {"train.name=whole"})));
  for (const char* steps : {"7", "11", "20"})
    succeed(place.train(with(settings, {"train.name=parts", std::string("train.steps=") + steps})));
  CHECK(place.differ("whole", "parts") == 0);
  CHECK_THAT(place.run("parts", "log.txt"), !ContainsSubstring("warning"));
}

TEST_CASE("numbers that are none are found, wherever they stand") {
  for (const int64_t n : {1, 5, 1024, 1025, 5000}) {
    std::vector<float> x(static_cast<size_t>(n), std::numeric_limits<float>::max());
    std::vector<Bf16> narrow(static_cast<size_t>(n), Bf16(-0x1.fep127f));
    std::vector<int32_t> integers(static_cast<size_t>(n), 0x7fc00000);
    const Tensor wide(x.data(), Dtype::f32, Place::cpu, {n}), half(narrow.data(), Dtype::bf16, Place::cpu, {n});
    CHECK(first_not_finite(wide) == -1);
    CHECK(first_not_finite(half) == -1);
    CHECK(first_not_finite(Tensor(integers.data(), Dtype::i32, Place::cpu, {n})) == -1);
    for (const int64_t at : {int64_t{0}, n / 2, n - 1})
      for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
        std::vector<float> y = x;
        y[static_cast<size_t>(at)] = bad;
        CHECK(first_not_finite(Tensor(y.data(), Dtype::f32, Place::cpu, {n})) == at);
        std::vector<Bf16> z = narrow;
        z[static_cast<size_t>(at)] = Bf16(bad);
        CHECK(first_not_finite(Tensor(z.data(), Dtype::bf16, Place::cpu, {n})) == at);
      }
  }
}

TEST_CASE("what a step may have follows from the steps up to the last but one, and from a checkpoint's counters") {
  StepStatistics history(4);
  std::map<std::string, int64_t> counters;
  for (int64_t step = 1; step <= 33; ++step) {
    CHECK(history.limits(step).loss == StepLimits::kLargest);
    history.saw(step, {.loss = 2 + 0.1f * static_cast<float>(step % 3 - 1), .grad_norm = 1, .lr = 0});
  }
  const StepLimits limits = StepStatistics(history).limits(35);
  CHECK(limits.loss > 2.2);
  CHECK(limits.loss < 2.5);
  CHECK(std::sqrt(limits.squared_norm) == Approx(1.02));
  history.saw(34, {.loss = 100, .grad_norm = 100, .lr = 0});  // not entered yet
  StepStatistics copy(4);
  history.store(counters);
  copy.load(counters, 0);
  CHECK(history.limits(35).loss == limits.loss);
  CHECK(copy.limits(35).loss == limits.loss);
  CHECK(history.limits(36).loss > 20);
  CHECK(copy.limits(36).loss == history.limits(36).loss);
  CHECK(copy.updates() == 34);
  copy.load({}, 7);
  CHECK(copy.updates() == 7);
  CHECK(copy.limits(50).loss == StepLimits::kLargest);
}

TEST_CASE("data is counted from the checkpoint that a run continues from, whatever its steps read") {
  const SeenData first{.sequences = 4, .tokens = 256}, then{.sequences = 6, .tokens = 192};
  StepStatistics history(4);
  CHECK(history.seen(20, first).tokens == 20 * 256);
  CHECK(history.seen(20, first).sequences == 80);
  history.load({{"sequences", 80}, {"tokens", 20 * 256}}, 20);
  CHECK(history.seen(20, then).tokens == 20 * 256);
  CHECK(history.seen(25, then).tokens == 20 * 256 + 5 * 192);
  CHECK(history.seen(25, then).sequences == 110);
  StepStatistics earlier(4);
  earlier.load({{"sequences", 40}, {"tokens", 10 * 256}}, 10);
  history.go_back_to(earlier);  // steps 11 to 20 keep what they read
  CHECK(history.seen(25, then).tokens == 20 * 256 + 5 * 192);
  history.load({{"updates", 7}}, 7);  // a checkpoint without these counters
  CHECK(history.seen(9, then).tokens == 9 * 192);
}

TEST_CASE("steps and ranges of steps are read as they are written") {
  CHECK(parse_step_range("7") == StepRange{7, 7});
  CHECK(parse_step_range("100-120") == StepRange{100, 120});
  for (const char* bad : {"", "0", "-1", "7-", "7-6", "7--9", "7-9-11", "a", "7a", " 7", "1e3", "99999999999999999999", "+7"})
    CHECK_FALSE(parse_step_range(bad).has_value());
  CHECK(holds({{2, 3}, {9, 9}}, 3));
  CHECK_FALSE(holds({{2, 3}, {9, 9}}, 4));
}

}  // namespace trireme
