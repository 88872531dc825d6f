// The first backward of a step writes the gradients of products' weights: what they were before is nothing to it.
#include <algorithm>
#include <limits>

#include "base/philox.h"
#include "test/catch.h"
#include "test/train/tiny_mesh.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

const Mesh kWithoutOthers;

// A run of tiny steps.
struct WrittenRun {
  RunConfig config;
  Device device{Place::cpu, read_cpu_facts()};
  TrainState run;
  std::vector<int32_t> tokens, targets, positions, starts;

  explicit WrittenRun(const RunConfig& wanted)
      : config(wanted), run(config, kWithoutOthers, device, make_plan(config, kWithoutOthers).sizes) {
    run.optimizer.initialise(device.compute(), 0.1, config.model.layers);
    const int64_t context = config.model.context;
    for (int64_t i = 0; i < config.train.batch * context; ++i) {
      tokens.push_back(static_cast<int32_t>(philox64(1, static_cast<uint64_t>(i)) % 61));
      targets.push_back(static_cast<int32_t>(philox64(2, static_cast<uint64_t>(i)) % 61));
      positions.push_back(static_cast<int32_t>(i % context));
      starts.push_back(0);
    }
  }

  StepResult step(int64_t number) {
    const auto ids = [&](std::vector<int32_t>& all) {
      return Tensor(all.data(), Dtype::i32, Place::cpu, {config.train.batch, config.model.context});
    };
    const Batch batch{.tokens = ids(tokens),
                      .targets = ids(targets),
                      .positions = ids(positions),
                      .document_start = ids(starts),
                      .valid = config.train.batch * config.model.context};
    return train_step(run, batch, number);
  }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::equal(static_cast<const std::byte*>(a.data()), static_cast<const std::byte*>(a.data()) + a.bytes(),
                    static_cast<const std::byte*>(b.data()));
}

}  // namespace

TEST_CASE("a step on one rank overwrites the gradients of products' weights, and clears all others") {
  for (const char* model : {"gpt2", "llama", "llama, untied"})
    for (const int64_t rows : {1, 8}) {
      RunConfig config = tiny(model);
      config.train.microbatch = rows;
      config.resolve();
      WrittenRun disturbed(config), quiet(config);
      CAPTURE(model, rows);
      const auto& parameters = disturbed.run.stage.parameters();
      int64_t written = 0;
      for (int64_t step = 0; step < 3; ++step) {
        for (const Parameter& p : parameters) {
          float* const gradient = p.gradient.as<float>();
          const bool overwritten = disturbed.run.stage.written(p);
          REQUIRE(overwritten ==
                  (!p.spec.is_vector() && (p.spec.name.find("embedding") == std::string::npos || config.model.tied) &&
                   p.spec.name.find("position") == std::string::npos));
          if (overwritten)
            std::fill_n(gradient, p.gradient.size(), std::numeric_limits<float>::quiet_NaN()), ++written;
          else
            CHECK(std::all_of(gradient, gradient + p.gradient.size(), [](float g) { return g == 0; }));
        }
        const StepResult found = disturbed.step(step), wanted = quiet.step(step);
        CHECK(found.loss == wanted.loss);
        CHECK(found.grad_norm == wanted.grad_norm);
      }
      CHECK(written > 3 * 2 * config.model.layers);
      for (size_t i = 0; i < parameters.size(); ++i) {
        INFO(parameters[i].spec.name);
        CHECK(same_bits(parameters[i].weight, quiet.run.stage.parameters()[i].weight));
      }
    }
}

}  // namespace trireme
