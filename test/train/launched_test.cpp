// Steps of several ranks from the inside: what the communication lane hides.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "kernels/philox.h"
#include "parallel/agree.h"
#include "test/catch.h"
#include "test/train/process.h"
#include "train/plan.h"
#include "train/step.h"

namespace trireme {
namespace {

// A step of this config on the mesh of the launcher's ranks.
struct Stepper {
  RunConfig config;
  World world;
  Mesh mesh;
  Device device{Place::cpu, read_cpu_facts()};
  Run run;
  std::vector<int32_t> ids;
  int64_t steps = 0;

  explicit Stepper(const RunConfig& wanted)
      : config(wanted), mesh(world, config.parallel), run(config, mesh, device, make_plan(config, mesh).sizes) {
    run.optimizer.initialise(device.compute(), 0.02, config.model.layers);
    ids.resize(static_cast<size_t>(config.train.batch / mesh.replicas() * config.model.context));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(philox64(5, i) % 200);
  }

  // The shortest of some steps, in seconds, on the slowest rank.
  double seconds(int64_t count) {
    double best = 1e9;
    for (int64_t i = 0; i < count; ++i) {
      largest(mesh.all(), 0);  // all begin together
      const auto begin = std::chrono::steady_clock::now();
      step();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return static_cast<double>(largest(mesh.all(), static_cast<int64_t>(best * 1e9))) / 1e9;
  }

 private:
  void step() {
    const int64_t rows = config.train.batch / mesh.replicas(), context = config.model.context;
    std::vector<int32_t> positions(ids.size()), starts(ids.size(), 0);
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % context);
    const auto tensor = [&](std::vector<int32_t>& x) { return Tensor(x.data(), Dtype::i32, Place::cpu, {rows, context}); };
    train_step(run,
               {.tokens = tensor(ids),
                .targets = tensor(ids),
                .positions = tensor(positions),
                .document_start = tensor(starts),
                .valid = config.train.batch * context},
               steps++);
  }
};

RunConfig config_of(int64_t zero) {
  RunConfig config;
  config.kernels.dtype = StepDtype::f32;
  config.model.layers = 40, config.model.width = 256, config.model.heads = 4, config.model.vocab = 257, config.model.context = 256;
  config.model.resolve();
  config.train.batch = 8;
  config.parallel.zero = zero;
  return config;
}

}  // namespace

TEST_CASE("slow collectives hide behind backward", "[.launched]") {
  Stepper stepper(config_of(0));
  REQUIRE(stepper.mesh.replicas() == 2);
  const double before = stepper.seconds(3);
  stepper.device.comm().lane()->delay(0.02);
  // Of each unit one, and the loss. Only the embedding's, the last, has nothing left to hide behind.
  const double collectives = static_cast<double>(stepper.run.stage.units().size()) + 1;
  const double after = stepper.seconds(3);
  WARN("a step of " << before * 1e3 << " ms grows by " << (after - before) * 1e3 << " ms of " << collectives * 20 << " ms delay");
  CHECK(after - before < 0.1 * collectives * 0.02);
}

TEST_CASE("the communication lane hides what collectives take", "[unsanitized]") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ended ended = run_launched({program, "slow collectives hide*"}, 2);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("All tests passed") != std::string::npos);
}

}  // namespace trireme
