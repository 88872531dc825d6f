// The program with the emulated GPU, from the outside.
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

const std::string kProgram = TRIREME_BUILD "/test/trireme_emulated";

// The settings of a run of `name` on the GPU.
std::vector<std::string> on_gpu(const std::string& name, std::vector<std::string> settings) {
  settings.insert(settings.end(), {"kernels.device=cuda", "train.name=" + name});
  return Workplace::arguments(settings);
}

bool emulated() {
  if (std::filesystem::exists(kProgram)) return true;
  WARN("skipped: CUDA threads are emulated on x86-64 alone");
  return false;
}

}  // namespace

TEST_CASE("a run on the emulated GPU has the losses of the CPU", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  for (const auto& [dtype, bound] : {std::pair("f32", 1e-4), std::pair("bf16", 0.02)}) {
    const std::string kernels = "kernels.dtype=" + std::string(dtype), name = "gpu-" + std::string(dtype);
    succeed(place.train({kernels, "train.name=cpu"}));
    const Ended ended = Process(place.scratch.path(), on_gpu(name, {kernels}), 1, kProgram).wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("emulated GPU") != std::string::npos);
    const auto cpu = place.metrics("cpu"), gpu = place.metrics(name);
    REQUIRE(cpu.size() == gpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      const char* key = cpu[i].contains("loss") ? "loss" : "val_loss";
      CHECK(gpu[i].at(key).get<double>() == Approx(cpu[i].at(key).get<double>()).epsilon(bound));
    }
    std::filesystem::remove_all(place.scratch / "runs/cpu");
  }
}

TEST_CASE("a run on the emulated GPU that is killed continues to the same bits", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const std::vector<std::string> often{"checkpoint.every=2", "kernels.dtype=bf16"};
  CHECK(Process(place.scratch.path(), on_gpu("whole", often), 1, kProgram).wait().code == 0);
  Process killed(place.scratch.path(), on_gpu("killed", often), 1, kProgram);
  while (killed.running() && place.lines("killed") < 9) usleep(2000);
  killed.signal(SIGKILL);
  CHECK(killed.wait().code == 128 + SIGKILL);
  const Ended again = Process(place.scratch.path(), on_gpu("killed", often), 1, kProgram).wait();
  INFO(again.out << again.err);
  CHECK(again.code == 0);
  CHECK(again.out.find("resumed after step") != std::string::npos);
  CHECK(place.metrics("killed") == place.metrics("whole"));
  CHECK(place.differ("whole", "killed") == 0);
}

TEST_CASE("what a GPU cannot do yet is told") {
  if (!emulated()) return;
  const Workplace place;
  const Ended ended =
      Process(place.scratch.path(), on_gpu("x", {"parallel.numerics=invariant", "train.microbatch=1"}), 1, kProgram).wait();
  CHECK(ended.code == 2);
  CHECK(ended.err.find("parallel.numerics") != std::string::npos);
  const Ended bench =
      Process(place.scratch.path(), {"bench", "step", "config.yaml", "--set", "kernels.device=cuda"}, 1, kProgram).wait();
  CHECK(bench.code == 2);
  CHECK(bench.err.find("measures the CPU alone yet") != std::string::npos);
  const Ended several = Process(place.scratch.path(), on_gpu("y", {"train.microbatch=1"}), 2, kProgram).wait();
  CHECK(several.code == 2);
  CHECK(several.err.find("several ranks on GPUs are not built yet") != std::string::npos);
}

}  // namespace trireme
