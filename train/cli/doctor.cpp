// trireme doctor: what this machine and this build can do, and what is missing.
#include <unistd.h>

#include "kernels/cuda_facts.h"
#include "kernels/device.h"
#include "kernels/tune/rates.h"
#include "parallel/world.h"
#include "train/cli/commands.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DoctorOptions {
  static constexpr auto name = "doctor";
  static constexpr auto about = "What this machine and this build can do, and what is missing";
  void visit(Options&) {}
};

void line(const char* what, const std::string& found) {
  say(std::string(what) + std::string(16 - std::min<size_t>(15, std::string_view(what).size()), ' ') + found);
}

ExitCode run_doctor(const DoctorOptions&) {
  Device device = open_device({}, 1);
  const CpuFacts& cpu = device.cpu();
  const std::vector<ProductShape> square{{.m = 1024, .n = 1024, .k = 1024, .transpose_b = true}};
  line("compiler", std::string("g++ ") + __VERSION__);
  line("processor", cpu.name);
  line("cores", std::to_string(cpu.cores) + " (" + std::to_string(device.threads()) + " threads a rank)");
  line("memory", human_bytes(static_cast<double>(cpu.memory_bytes)));
  line("vectors", cpu.avx512 ? "AVX-512" : cpu.avx2 ? "AVX2" : "SSE2: the CPU kernels will be slow");
  line("bf16 products", cpu.bf16_path());
  line("copy", human_si(1e9 * copy_bandwidth(device)) + "B/s, read and written");
  line("products f32", human_si(1e9 * product_rate(device, Dtype::f32, square)) + "FLOP/s");
  line("products bf16", human_si(1e9 * product_rate(device, Dtype::bf16, square)) + "FLOP/s");
  line("CUDA", cuda_facts().verdict);
  const FusedFacts fused = fused_attention_facts();
  line("cuDNN", fused.found ? fused.verdict + "; kernels.attention may use it" : fused.verdict);
  const std::optional<int64_t> ranks = launched_ranks();
  line("launcher", ranks ? "MPI, " + std::to_string(*ranks) + " ranks" : "none: a plain start is one rank");
  line("here", access(".", W_OK) == 0 ? "the working directory can be written"
                                      : "the working directory cannot be written: runs/ must lie elsewhere (train.runs)");
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> doctor_command() { return make_command<DoctorOptions>(run_doctor); }

}  // namespace trireme
