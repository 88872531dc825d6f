#include "kernels/device.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/cuda_facts.h"

namespace trireme {

std::string CpuFacts::bf16_path() const {
  return amx_bf16 ? "AMX" : avx512_bf16 ? "AVX512-BF16" : "none (products convert to f32)";
}

CpuFacts read_cpu_facts() {
  CpuFacts facts;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name") && facts.name.empty()) facts.name = line.substr(std::min(line.size(), colon + 2));
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) {
      facts.avx2 |= word == "avx2";
      facts.avx512 |= word == "avx512bw";
      facts.avx512_bf16 |= word == "avx512_bf16";
      facts.amx_bf16 |= word == "amx_bf16";
    }
    break;
  }
  if (facts.name.empty()) facts.name = "unknown processor";
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) facts.cores = std::max(1, CPU_COUNT(&set));
  facts.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;
  if (std::ifstream cgroup("/sys/fs/cgroup/memory.max"); cgroup >> limit && limit > 0)
    facts.memory_bytes = std::min(facts.memory_bytes, limit);
  return facts;
}

void Ledger::allocate(int64_t bytes, const char* what) {
  require(!frozen_, text("allocation of ", bytes, " bytes for ", what, " after the first step"));
  bytes_ += bytes;
}

Workspace::~Workspace() { std::free(data_); }

std::byte* Workspace::reserve(int64_t bytes) {
  if (bytes <= bytes_) return data_;
  const int64_t rounded = (bytes + 4095) / 4096 * 4096;
  ledger_.allocate(rounded - bytes_, "workspace");
  std::free(data_);
  data_ = static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(rounded)));
  bytes_ = data_ == nullptr ? 0 : rounded;
  require(data_ != nullptr, text("out of memory: workspace of ", rounded, " bytes"));
  return data_;
}

Device::Device(Place place, CpuFacts facts)
    : place_(place),
      facts_(std::move(facts)),
      compute_(place == Place::none ? Stream(tally_)
                                    : Stream(Cpu{.workspace = &workspace_, .bf16_products = facts_.bf16_products()}, nullptr)) {}

Stream& Device::comm() {
  if (comm_) return *comm_;
  if (place_ == Place::none) return comm_.emplace(comm_tally_);
  return comm_.emplace(Cpu{.workspace = &comm_workspace_, .bf16_products = facts_.bf16_products()}, nullptr, &lane_.emplace());
}

int Device::threads() const { return omp_get_max_threads(); }

void Device::measure(bool on) {
  tally_.clear();
  if (place_ == Place::none) return;
  compute_ = Stream(compute_.cpu(), on ? &tally_ : nullptr);
}

Device open_device(const KernelsConfig& config, int ranks_on_node) {
  if (config.device == DeviceChoice::cuda)
    throw ConfigError(text("kernels.device = cuda: ", cuda_facts().verdict, "; set kernels.device to cpu or auto"));
  CpuFacts facts = read_cpu_facts();
  const int64_t threads = config.threads > 0 ? config.threads : std::max(1, facts.cores / std::max(1, ranks_on_node));
  omp_set_num_threads(static_cast<int>(threads));
  return Device(Place::cpu, std::move(facts));
}

}  // namespace trireme
