// Device: the machine a rank computes on, its lanes, its scratch memory and the rule that nothing is allocated after step one.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>

#include "kernels/config.h"
#include "kernels/stream.h"

namespace trireme {

// What this machine's processor offers, read once.
struct CpuFacts {
  std::string name;  // as the processor calls itself
  int cores = 1;     // this process may use (affinity respected)
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  int64_t memory_bytes = 0;  // physical memory, or the cgroup's limit where it is lower
  // The instructions bf16 products use, for people: "AMX", "AVX512-BF16" or "none (products convert to f32)".
  std::string bf16_path() const;
  bool bf16_products() const { return avx512_bf16 || amx_bf16; }
};
CpuFacts read_cpu_facts();

// The part of Device that owners of memory see.
class Ledger {
 public:
  // Throws Error once frozen; otherwise adds to bytes().
  void allocate(int64_t bytes, const char* what);
  void release(int64_t bytes) noexcept { bytes_ -= bytes; }
  void freeze() { frozen_ = true; }
  void thaw() { frozen_ = false; }
  bool frozen() const { return frozen_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::atomic<int64_t> bytes_ = 0;  // both: lanes have scratch memory, too
  std::atomic<bool> frozen_ = false;
};

// Scratch of CPU kernels: grows until the ledger is frozen; each reserve() invalidates the one before. 64-byte aligned.
class Workspace {
 public:
  explicit Workspace(Ledger& ledger) : ledger_(ledger) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* reserve(int64_t bytes);
  int64_t bytes() const { return bytes_; }

 private:
  Ledger& ledger_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Device {
 public:
  explicit Device(Place place, CpuFacts facts = {});
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Place place() const { return place_; }
  const CpuFacts& cpu() const { return facts_; }
  int threads() const;  // of OpenMP, on Place::cpu
  Stream& compute() { return compute_; }
  // The communication lane; on Place::cpu its thread starts with the first call.
  Stream& comm();
  Ledger& ledger() { return ledger_; }
  int64_t workspace_bytes() const { return workspace_.bytes() + comm_workspace_.bytes(); }
  // What ran on the compute lane since the last call of measure(). Always counted on Place::none.
  Tally& tally() { return tally_; }
  Tally& comm_tally() { return comm_tally_; }
  void measure(bool on);  // per-op times on a real place: for `trireme bench`
  // From here on an allocation through this device throws.
  void freeze() { ledger_.freeze(); }
  void thaw() { ledger_.thaw(); }

 private:
  Place place_;
  CpuFacts facts_;
  Ledger ledger_;
  Workspace workspace_{ledger_};
  Tally tally_, comm_tally_;
  Stream compute_;
  Workspace comm_workspace_{ledger_};
  std::optional<Lane> lane_;
  std::optional<Stream> comm_;
};

// The device the config asks for. Sets OpenMP's number of threads: kernels.threads, or the cores divided by ranks_on_node.
// ConfigError when a CUDA device is asked for and cannot run steps.
Device open_device(const KernelsConfig& config, int ranks_on_node);

}  // namespace trireme
