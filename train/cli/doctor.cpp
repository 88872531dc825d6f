// trireme doctor: measures this machine and reports what this build can use of it.
#include <unistd.h>

#include "base/build_facts.h"
#include "base/confined.h"
#include "kernels/cuda_facts.h"
#include "kernels/device.h"
#include "kernels/machine_memory.h"
#include "kernels/tune/rates.h"
#include "parallel/world.h"
#include "train/cli/commands.h"
#include "train/cli/fabric_doctor.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DoctorOptions {
  static constexpr auto name = "doctor";
  static constexpr auto about = "Report the abilities of this machine and of this build, and the gaps";
  std::string config, json;
  std::vector<std::string> set;
  bool fabric = false;
  void visit(Options& o) {
    o("--fabric", fabric,
      "Check all ranks of this launcher before a run: products and their bits, memory, disks, clocks, software and all links; 76 "
      "if "
      "a host is not fit");
    o("config", config, "YAML file of the run, for its mesh, its sizes and its disk").needs("--fabric");
    o.set(set).needs("config");
    o.json(json);
  }
};

struct Findings {
  CpuFacts cpu;
  int threads;                         // of a rank
  int64_t nodes;                       // NUMA nodes of the cores that this rank may use; 0: unknown
  std::string huge_pages;              // empty: unknown
  double copy;                         // bytes/s, read and written
  double products_f32, products_bf16;  // FLOP/s
  CudaFacts cuda;
  FusedFacts cudnn;
  std::optional<int64_t> ranks;  // started by a launcher
  bool writable;                 // the working directory
};

Findings examine() {
  Device device = open_device({}, 1);
  const std::vector<ProductShape> square{{.m = 1024, .n = 1024, .k = 1024, .transpose_b = true}};
  return {.cpu = device.cpu(),
          .threads = device.threads(),
          .nodes = std::ssize(cores_by_node()),
          .huge_pages = huge_pages(),
          .copy = 1e9 * copy_bandwidth(device),
          .products_f32 = 1e9 * product_rate(device, Dtype::f32, square),
          .products_bf16 = 1e9 * product_rate(device, Dtype::bf16, square),
          .cuda = cuda_facts(),
          .cudnn = fused_attention_facts(),
          .ranks = launched_ranks(),
          .writable = access(".", W_OK) == 0};
}

const char* vectors_of(const CpuFacts& cpu) { return cpu.avx512 ? "AVX-512" : cpu.avx2 ? "AVX2" : "SSE2"; }

void line(const char* what, const std::string& found) {
  say(std::string(what) + std::string(16 - std::min<size_t>(15, std::string_view(what).size()), ' ') + found);
}

// Each NUMA node's cores read its own memory fastest, so that a rank should not have cores of several.
std::string words_of_nodes(int64_t nodes) {
  if (nodes == 0) return "unknown";
  if (nodes == 1) return "1, whose memory this rank's cores share";
  const std::string many = std::to_string(nodes);
  return many + ": start a rank on each, mpirun -n " + many + " --map-by numa --bind-to numa";
}

std::string words_of_huge_pages(const std::string& chosen) {
  if (chosen.empty()) return "unknown";
  if (chosen == "never") return "never: with madvise in /sys/kernel/mm/transparent_hugepage/enabled, steps are faster";
  return chosen + ": large tensors have them";
}

void say_findings(const Findings& f) {
  line("version", version_line());
  line("compiler", build_facts().compiler);
  line("processor", f.cpu.name);
  line("cores", std::to_string(f.cpu.cores) + " (" + std::to_string(f.threads) + " threads a rank)");
  line("memory", human_bytes(static_cast<double>(f.cpu.memory_bytes)));
  line("NUMA nodes", words_of_nodes(f.nodes));
  line("huge pages", words_of_huge_pages(f.huge_pages));
  line("vectors", vectors_of(f.cpu) + std::string(f.cpu.avx2 ? "" : ": the CPU kernels will be slow"));
  line("bf16 products", f.cpu.bf16_path());
  line("copy", human_si(f.copy) + "B/s, read and written");
  line("products f32", human_si(f.products_f32) + "FLOP/s");
  line("products bf16", human_si(f.products_bf16) + "FLOP/s");
  line("CUDA", f.cuda.verdict);
  line("cuDNN", f.cudnn.verdict + (f.cudnn.found ? "; kernels.attention may use it" : ""));
  line("foreign files", "read in " + confinement());
  line("launcher", f.ranks ? "MPI, " + std::to_string(*f.ranks) + " ranks" : "none: started without one, a run has one rank");
  line("here", f.writable ? "the working directory is writable"
                          : "the working directory is not writable: set train.runs to a directory that is");
}

Json json_of(const Findings& f) {
  return {{"version", build_facts().version},
          {"compiler", build_facts().compiler},
          {"processor", f.cpu.name},
          {"cores", f.cpu.cores},
          {"threads_per_rank", f.threads},
          {"memory_bytes", f.cpu.memory_bytes},
          {"numa_nodes", f.nodes > 0 ? Json(f.nodes) : Json()},
          {"huge_pages", f.huge_pages.empty() ? Json() : Json(f.huge_pages)},
          {"vectors", vectors_of(f.cpu)},
          {"bf16_products", f.cpu.gains_by_bf16()},
          {"copy_bytes_per_second", f.copy},
          {"product_f32_flops_per_second", f.products_f32},
          {"product_bf16_flops_per_second", f.products_bf16},
          {"cuda",
           {{"built", f.cuda.built},
            {"toolkit", f.cuda.toolkit},
            {"devices", f.cuda.devices},
            {"device", f.cuda.device},
            {"capability", f.cuda.capability},
            {"kernel_ran", f.cuda.kernel_ran},
            {"verdict", f.cuda.verdict}}},
          {"cudnn", {{"found", f.cudnn.found}, {"verdict", f.cudnn.verdict}}},
          {"launched_ranks", f.ranks ? Json(*f.ranks) : Json()},
          {"directory_writable", f.writable}};
}

ExitCode run_doctor(const DoctorOptions& options) {
  if (options.fabric) return run_fabric_doctor({.config = options.config, .set = options.set, .json = options.json});
  JsonOutput json(options.json);
  const Findings findings = examine();
  say_findings(findings);
  json.write(json_of(findings));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> doctor_command() { return make_command<DoctorOptions>(run_doctor); }

}  // namespace trireme
