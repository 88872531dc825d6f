// Device: the machine on which a rank computes. It has lanes and scratch memory, and refuses
// allocations after the first step.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/config.h"
#include "kernels/stream.h"

namespace trireme {

// Facts about this machine's processor, read once.
struct CpuFacts {
  std::string name{};  // as reported by the processor
  int cores = 1;       // cores that this process may use, by its affinity
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  int64_t memory_bytes = 0;                          // physical memory, or the cgroup's limit if it is lower
  ProductKernels products = ProductKernels::onednn;  // kernels.products
  bool slow_bf16 = false;  // AVX512-BF16 multiplies slower than this program's f32 does, as on processors that have AMX for it
  bool amx_tiles = false;  // this process may use AMX's tiles

  // Instructions for bf16 products, as text: "AMX", "AVX512-BF16", or "f32"; and ", ours" where the products are our own.
  std::string bf16_path() const;
  bool has_bf16() const { return avx512_bf16 || amx_bf16; }
  bool own_bf16() const { return avx512_bf16 && !slow_bf16; }  // our own products use AVX512-BF16, if not AMX
  bool own_amx() const { return amx_bf16 && amx_tiles; }
  bool gains_by_bf16() const { return amx_bf16 || own_bf16(); }
  // Whether oneDNN multiplies bf16 by its instructions, and whether products of f32 are our own: by choice, or where that is the
  // faster one. Our own bf16 products by AVX512-BF16 are, in a program for AVX-512; others were never timed.
  bool bf16_products() const;
  bool own_f32() const;
};
CpuFacts read_cpu_facts();

// Accounts for a device's memory; the part of Device that owners of memory see.
class Ledger {
 public:
  // Throws Error once frozen; otherwise adds to bytes().
  void allocate(int64_t bytes, const char* what);
  void release(const void* memory, int64_t bytes) noexcept;
  void check_order(OrderChecker* order) { order_ = order; }
  void freeze() { frozen_ = true; }
  void thaw() { frozen_ = false; }
  bool frozen() const { return frozen_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::atomic<int64_t> bytes_ = 0;  // atomic, since several lanes have scratch memory
  std::atomic<bool> frozen_ = false;
  OrderChecker* order_ = nullptr;
};

// Scratch memory of CPU kernels, aligned to 64 bytes. It grows until the ledger is frozen; each
// reserve() invalidates the previous one.
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

// The trace of a lane: "compute", "comm", "pipe(0)".
struct LaneTrace {
  std::string name;
  const std::vector<TraceEvent>* events;
  int64_t dropped;  // events beyond TraceLane::kMost
};

class Device {
 public:
  explicit Device(Place place, CpuFacts facts = {});
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Place place() const { return place_; }
  const CpuFacts& cpu() const { return facts_; }
  int threads() const;  // OpenMP's, on Place::cpu
  Stream& compute() { return compute_; }
  // The communication lane. On Place::cpu its thread starts with the first call.
  Stream& comm() { return side_lane(0); }
  // Separate lanes for the messages between pipeline stages, started likewise.
  static constexpr size_t kPipes = 8;
  Stream& pipe(size_t number) { return side_lane(1 + number); }
  // The lane for tensor-parallel exchanges beside products, started likewise.
  Stream& beside() { return side_lane(kBeside); }
  // Kernels chosen for attention on the compute lane: see attention_choice.h.
  AttentionChoices& attention() { return attention_; }
  // Times the thread that computes, on Place::cpu: restart() it there.
  PartClock& clock() { return clock_; }
  Ledger& ledger() { return ledger_; }
  std::vector<CudaLane*> cuda_lanes() const;  // on Place::cuda: first the compute lane, then the others
  void guard_waits(WaitGuard guard);          // on Place::cuda: for all lanes
  // On Place::cuda: allocator of Buffers made later.
  void allocate_by(const GpuAllocator& allocator) { gpu_allocator_ = allocator; }
  const GpuAllocator& gpu_allocator() const { return gpu_allocator_; }
  int64_t workspace_bytes() const;  // scratch memory of lanes
  // Work on the compute lane since the last call of measure(). Always counted on Place::none.
  Tally& tally();
  Tally side_tally();  // the same of all other lanes, which it waits for; not of GPUs
  // Enables counts and times per op on a real place, for `trireme bench`, and clears both tallies.
  void measure(bool on);
  // Traces the work of all lanes from here on, on Place::cpu; false: no more. Waits for the other lanes.
  void trace(bool on);
  std::vector<LaneTrace> traces();  // likewise; until the next trace(true)
  // For tests: makes an op throw if it touches memory that another lane's op has touched without a
  // wait between them; see race_checker.h. Does not watch copies of streams made before, nor
  // Place::none, where tensors have no memory.
  void check_order(bool on);
  // Makes every later allocation through this device throw.
  void freeze() { ledger_.freeze(); }
  void thaw() { ledger_.thaw(); }

 private:
  struct CudaLaneCloser {
    void operator()(CudaLane* lane) const { close_cuda_lane(lane); }
  };
  using OwnCudaLane = std::unique_ptr<CudaLane, CudaLaneCloser>;
  void watch_lanes();
  void finish_side_lanes();

  Place place_;
  CpuFacts facts_;
  Ledger ledger_;
  Workspace workspace_{ledger_};
  Tally tally_;
  AttentionChoices attention_;
  PartClock clock_;
  GpuAllocator gpu_allocator_;
  OwnCudaLane cuda_lane_;
  Stream compute_;
  Workspace comm_workspace_{ledger_}, beside_workspace_{ledger_};
  struct SideLane {
    Tally tally;  // outlives the lane, which counts
    TraceLane trace;
    std::optional<CpuQueue> lane;
    OwnCudaLane cuda_lane;
    std::optional<Stream> stream;
  };
  Stream make_compute();
  Stream& side_lane(size_t number);
  static std::string side_name(size_t number);
  static constexpr size_t kBeside = 1 + kPipes;
  std::array<SideLane, 1 + kBeside> side_lanes_;
  OrderChecker order_;
  TraceLane trace_;
  bool checks_order_ = false, measures_ = false, traces_ = false;
};

// Number of threads of the OpenMP regions that the calling thread starts.
int threads_here();
void use_threads_here(int threads);

// Opens the device that the config asks for. Sets OpenMP's number of threads: kernels.threads, or
// this process's cores divided by the ranks that share them.
// On CUDA, this process takes GPU number `gpu`, modulo the visible ones. ConfigError if it cannot
// run steps.
Device open_device(const KernelsConfig& config, int core_sharers, int gpu = 0);

}  // namespace trireme
