#include "kernels/device.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/core_set.h"
#include "base/text_stream.h"
#include "kernels/allowed_bf16.h"
#include "kernels/cuda_facts.h"
#include "kernels/cuda_machine.h"
#include "kernels/near_cores.h"
#include "kernels/tune/multiply_add.h"
#include "kernels/vector_bytes.h"
#include "kernels/x86_features.h"

namespace trireme {

std::string CpuFacts::bf16_path() const {
  if (!bf16_products()) return own_amx() ? "AMX, ours" : own_bf16() ? "AVX512-BF16, ours" : "f32, ours";
  return amx_bf16 ? "AMX" : "AVX512-BF16";
}

bool CpuFacts::bf16_products() const {
  if (products == ProductKernels::onednn) return has_bf16();
  return products == ProductKernels::automatic && (amx_bf16 || (own_bf16() && kVectorBytes < 64));
}

// oneDNN's products of f32 are the faster ones on a processor with fast bf16 instructions, or with wider vectors than this program
// was compiled for.
bool CpuFacts::own_f32() const {
  const int widest = avx512 ? 64 : avx2 ? 32 : 16;
  return products == ProductKernels::ours || (products == ProductKernels::automatic && !gains_by_bf16() && kVectorBytes >= widest);
}

namespace {

// Intel's processors with AMX do AVX512-BF16 at half the rate of f32 in vectors as wide, AMD's at twice. A virtual machine may
// hide AMX alone.
bool measure_slow_bf16() {
  const auto multiply_f32 = kVectorBytes == 64   ? &multiply_and_add_avx512
                            : kVectorBytes == 32 ? &multiply_and_add_avx2
                                                 : &multiply_and_add_plain;
  constexpr int64_t kTimes = 4000;  // a few hundredths of a millisecond
  double f32 = 0, bf16 = 0;         // FLOP/s, the best of several
  for (int i = 0; i < 8; ++i)
    for (const auto& [best, multiply] : {std::pair(&f32, multiply_f32), {&bf16, &multiply_and_add_bf16}}) {
      const auto begin = Clock::now();
      const double flops = multiply(kTimes);
      *best = std::max(*best, flops / seconds_since(begin));
    }
  return bf16 < f32;  // by half or twice on the processors seen so far: noise does not change it
}

}  // namespace

CpuFacts read_cpu_facts() {
  CpuFacts facts;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name") && facts.name.empty()) facts.name = line.substr(std::min(line.size(), colon + 2));
    if (!line.starts_with("flags")) continue;
    TextReader words(line.substr(colon + 1));
    for (std::string word; words >> word;) {
      facts.avx2 |= word == "avx2";
      facts.avx512 |= word == "avx512bw";
      // An emulator may show its host's file, without the instructions.
      facts.avx512_bf16 |= word == "avx512_bf16" && has_avx512_bf16_instructions();
      facts.amx_bf16 |= word == "amx_bf16";
    }
    break;
  }
  facts.avx512_bf16 &= allowed_bf16().avx512, facts.amx_bf16 &= allowed_bf16().amx;
  if (facts.name.empty()) facts.name = "unknown processor";
  static const bool slow = facts.avx512_bf16 && measure_slow_bf16();
  facts.slow_bf16 = slow;
  facts.amx_tiles = facts.amx_bf16 && may_use_amx();
  facts.cores = std::max(1, CoreSet::of_this_thread().count());
  facts.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;
  if (std::ifstream cgroup("/sys/fs/cgroup/memory.max"); cgroup >> limit && limit > 0)
    facts.memory_bytes = std::min(facts.memory_bytes, limit);
  return facts;
}

void Ledger::allocate(int64_t bytes, const char* what) {
  require(!frozen_, text("allocation of ", bytes, " bytes for ", what, " after the first step: memory is frozen"));
  bytes_ += bytes;
}

void Ledger::release(const void* memory, int64_t bytes) noexcept {
  bytes_ -= bytes;
  if (order_ != nullptr) order_->forget(memory, bytes);
}

constexpr int64_t kHugePage = 2 << 20;

Workspace::~Workspace() { std::free(data_); }

std::byte* Workspace::reserve(int64_t bytes) {
  if (bytes <= bytes_) return data_;
  const int64_t rounded = (bytes + 4095) / 4096 * 4096;
  ledger_.allocate(rounded - bytes_, "workspace");
  std::free(data_);
  void* memory = nullptr;
  const bool failed = posix_memalign(&memory, rounded < kHugePage ? 4096 : kHugePage, static_cast<size_t>(rounded)) != 0;
  data_ = static_cast<std::byte*>(memory), bytes_ = failed ? 0 : rounded;
  if (rounded >= kHugePage && !failed) madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  require(!failed, text("out of memory: workspace of ", rounded, " bytes"));
  return data_;
}

Device::Device(Place place, CpuFacts facts)
    : place_(place),
      facts_(std::move(facts)),
      cuda_lane_(place == Place::cuda ? open_cuda_lane(ledger_) : nullptr),
      compute_(make_compute()) {
  // Created before NCCL's streams: the first streams get GPU queues of their own.
  if (place == Place::cuda)
    for (size_t number = 0; number < side_lanes_.size(); ++number) side_lane(number);
}

namespace {

Cpu cpu_of(const CpuFacts& facts, Workspace* workspace) {
  return {.workspace = workspace,
          .bf16_products = facts.bf16_products(),
          .own_bf16 = facts.own_bf16(),
          .own_amx = facts.own_amx(),
          .own_f32 = facts.own_f32(),
          .multiplies_pairs = facts.own_bf16() && allowed_bf16().avx512};
}

}  // namespace

Stream Device::make_compute() {
  if (place_ == Place::none) return Stream(tally_);
  if (place_ == Place::cuda) return Stream(Cuda{.lane = cuda_lane_.get(), .attention = &attention_}, nullptr);
  Stream compute(cpu_of(facts_, &workspace_), nullptr);
  compute.time_by(&clock_);
  return compute;
}

Stream& Device::side_lane(size_t number) {
  SideLane& side = side_lanes_.at(number);
  if (side.stream) return *side.stream;
  if (place_ == Place::none) return side.stream.emplace(side.tally);
  if (place_ == Place::cuda) {
    side.cuda_lane.reset(open_cuda_lane(ledger_));
    side.stream.emplace(Cuda{.lane = side.cuda_lane.get()}, nullptr);
    watch_lanes();
    return *side.stream;
  }
  Workspace* const workspace = number == 0 ? &comm_workspace_ : number == kBeside ? &beside_workspace_ : nullptr;
  Tally* const tally = measures_ ? &side.tally : nullptr;
  side.stream.emplace(cpu_of(facts_, workspace), tally, &side.lane.emplace());
  side.stream->execute([threads = threads_here()] { use_threads_here(threads); });  // a new thread would take every core
  if (traces_) side.trace.restart(), side.stream->trace_into(&side.trace);
  watch_lanes();
  return *side.stream;
}

int64_t Device::workspace_bytes() const {
  int64_t bytes = workspace_.bytes() + comm_workspace_.bytes() + beside_workspace_.bytes();
  for (const OwnCudaLane* lane : {&cuda_lane_, &side_lanes_[0].cuda_lane, &side_lanes_[kBeside].cuda_lane})
    if (*lane) bytes += scratch_bytes(**lane);
  return bytes;
}

std::vector<CudaLane*> Device::cuda_lanes() const {
  std::vector<CudaLane*> lanes{cuda_lane_.get()};
  for (const SideLane& side : side_lanes_) lanes.push_back(side.cuda_lane.get());
  return lanes;
}

void Device::guard_waits(WaitGuard guard) {
  if (place_ != Place::cuda) return;
  for (CudaLane* const lane : cuda_lanes()) trireme::guard_waits(*lane, guard);
}

int threads_here() { return omp_get_max_threads(); }
void use_threads_here(int threads) { omp_set_num_threads(threads); }

int Device::threads() const { return threads_here(); }

Tally& Device::tally() {
  if (cuda_lane_) collect_timers(*cuda_lane_);
  return tally_;
}

void Device::finish_side_lanes() {
  for (SideLane& side : side_lanes_)
    if (side.stream) side.stream->finish();
}

Tally Device::side_tally() {
  finish_side_lanes();
  Tally all;
  for (const SideLane& side : side_lanes_)
    for (const auto& [name, more] : side.tally) {
      OpCount& count = all[name];
      count.calls += more.calls, count.flops += more.flops, count.bytes += more.bytes, count.seconds += more.seconds;
      for (const auto& [shape, calls] : more.shapes) count.shapes[shape] += calls;
    }
  return all;
}

void Device::measure(bool on) {
  finish_side_lanes();
  tally().clear();
  for (SideLane& side : side_lanes_) side.tally.clear();
  if (place_ == Place::none) return;
  measures_ = on;
  compute_.measure(on ? &tally_ : nullptr);
  for (SideLane& side : side_lanes_)
    if (side.stream && place_ == Place::cpu) side.stream->measure(on ? &side.tally : nullptr);
  watch_lanes();
}

void Device::trace(bool on) {
  finish_side_lanes();
  traces_ = on;
  const auto into = [on](Stream& stream, TraceLane& trace) {
    if (on) trace.restart();
    stream.trace_into(on ? &trace : nullptr);
  };
  into(compute_, trace_);
  for (SideLane& side : side_lanes_)
    if (side.stream) into(*side.stream, side.trace);
}

std::vector<LaneTrace> Device::traces() {
  finish_side_lanes();
  std::vector<LaneTrace> all{{"compute", &trace_.events(), trace_.dropped()}};
  for (size_t i = 0; i < side_lanes_.size(); ++i) {
    const TraceLane& trace = side_lanes_[i].trace;
    all.push_back({side_name(i), &trace.events(), trace.dropped()});
  }
  return all;
}

void Device::check_order(bool on) {
  checks_order_ = on && place_ != Place::none;
  order_.forget_all();  // it does not see what happens while it is off
  ledger_.check_order(checks_order_ ? &order_ : nullptr);
  watch_lanes();
}

std::string Device::side_name(size_t number) {
  return number == 0 ? "comm" : number == kBeside ? "beside" : "pipe(" + std::to_string(number - 1) + ")";
}

void Device::watch_lanes() {
  const auto watch = [&](Stream& stream, const std::string& lane) {
    stream.check_order(checks_order_ ? &order_ : nullptr, checks_order_ ? order_.lane(lane) : 0);
  };
  watch(compute_, "compute");
  for (size_t i = 0; i < side_lanes_.size(); ++i)
    if (side_lanes_[i].stream) watch(*side_lanes_[i].stream, side_name(i));
}

Device open_device(const KernelsConfig& config, int core_sharers, int gpu) {
  const bool cuda = config.device == DeviceChoice::cuda;
  if (cuda) use_gpu(gpu);
  if (cuda && !cuda_facts().kernel_ran)
    throw ConfigError(text("kernels.device = cuda: ", cuda_facts().verdict, "; set kernels.device to cpu or auto"));
  if (cuda && config.attention == AttentionKernels::cudnn && !fused_attention_facts().found)
    throw ConfigError(text("kernels.attention = cudnn: ", fused_attention_facts().verdict,
                           "; install cuDNN 9, or set kernels.attention to auto or ours"));
  constexpr int kWith8Bits = 90;
  if (cuda && config.matmul == MatmulDtype::fp8 && cuda_facts().capability < kWith8Bits)
    throw ConfigError(text("kernels.matmul = fp8: ", cuda_facts().device, " has no 8-bit products (compute capability ",
                           cuda_facts().capability / 10, ".", cuda_facts().capability % 10,
                           ", needed 9.0); set kernels.matmul to auto"));
  CpuFacts facts = read_cpu_facts();
  if (!cuda && config.products == ProductKernels::onednn && config.dtype == StepDtype::bf16 && !facts.bf16_products())
    throw ConfigError("kernels.products = onednn: " + facts.name +
                      " has no bf16 instructions, and without them it is slow; set kernels.products to auto or ours");
  facts.products = config.products;
  const int64_t threads = config.threads > 0 ? config.threads : std::max(1, facts.cores / std::max(1, core_sharers));
  use_threads_here(static_cast<int>(threads));
  if (cuda) facts.cores = keep_to_cores(cores_near(gpu_bus()));
  return Device(cuda ? Place::cuda : Place::cpu, std::move(facts));
}

}  // namespace trireme
