// cuda_runtime.h for g++: CUDA's keywords, and the part of its library that kernels/cuda/ calls,
// implemented on the CPU. Joint operations of threads are in grid.h; memory, streams and events in
// runtime.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "test/emulation/grid.h"
#include "test/emulation/registers.h"

#define __global__
#define __device__
#define __launch_bounds__(...)
#define CUDART_VERSION 13000

// Positions and vectors.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Arithmetic.
using std::isfinite;
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __popc(unsigned x) { return std::popcount(x); }

// Joint operations of threads.
inline void __syncthreads(std::source_location at = std::source_location::current()) { trireme::emulation::sync_threads(at); }
inline void __syncwarp(unsigned mask = ~0u, std::source_location at = std::source_location::current()) {
  trireme::emulation::with_warp(
      mask, "__syncwarp", nullptr, [](trireme::emulation::Lanes) {}, at);
}
namespace trireme::emulation {
// Each lane gets the value of the lane source(lane), or its own if that is outside its group of
// `width`.
template <class T, class Source>
T shuffle(unsigned mask, T value, unsigned width, const char* op, Source source, Site at) {
  T mine = value;
  with_warp(
      mask, op, &mine,
      [&](Lanes lanes) {
        T before[32];
        for (unsigned lane = 0; lane < 32; ++lane)
          if (lanes[lane] != nullptr) std::memcpy(&before[lane], lanes[lane], sizeof(T));
        for (unsigned lane = 0; lane < 32; ++lane) {
          const unsigned from = source(lane);
          if (lanes[lane] == nullptr || from / width != lane / width) continue;
          if (lanes[from] == nullptr) throw GridError(std::string(op) + " reads a lane outside of its mask");
          std::memcpy(lanes[lane], &before[from], sizeof(T));
        }
      },
      at);
  return mine;
}
}  // namespace trireme::emulation
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, std::source_location at = std::source_location::current()) {
  return trireme::emulation::shuffle(
      mask, value, static_cast<unsigned>(width), "__shfl_xor_sync",
      [&](unsigned lane) { return lane ^ static_cast<unsigned>(with); }, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, std::source_location at = std::source_location::current()) {
  return trireme::emulation::shuffle(
      mask, value, static_cast<unsigned>(width), "__shfl_down_sync", [&](unsigned lane) { return lane + by; }, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, std::source_location at = std::source_location::current()) {
  return trireme::emulation::shuffle(
      mask, value, static_cast<unsigned>(width), "__shfl_up_sync", [&](unsigned lane) { return lane - by; }, at);
}
// Lanes may name different ones.
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, std::source_location at = std::source_location::current()) {
  struct Asked {
    T value;
    unsigned from;
  } mine{value, static_cast<unsigned>(from)};
  trireme::emulation::with_warp(
      mask, "__shfl_sync", &mine,
      [&](trireme::emulation::Lanes lanes) {
        T before[32];
        for (unsigned lane = 0; lane < 32; ++lane)
          if (lanes[lane] != nullptr) before[lane] = static_cast<Asked*>(lanes[lane])->value;
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (lanes[lane] == nullptr) continue;
          auto& asked = *static_cast<Asked*>(lanes[lane]);
          const unsigned w = static_cast<unsigned>(width), source = lane / w * w + asked.from % w;
          if (lanes[source] == nullptr) throw trireme::emulation::GridError("__shfl_sync reads a lane outside of its mask");
          asked.value = before[source];
        }
      },
      at);
  return mine.value;
}
inline unsigned __ballot_sync(unsigned mask, bool vote, std::source_location at = std::source_location::current()) {
  unsigned mine = vote ? 1 : 0;
  trireme::emulation::with_warp(
      mask, "__ballot_sync", &mine,
      [](trireme::emulation::Lanes lanes) {
        unsigned all = 0;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (lanes[lane] != nullptr && *static_cast<unsigned*>(lanes[lane]) != 0) all |= 1u << lane;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (lanes[lane] != nullptr) *static_cast<unsigned*>(lanes[lane]) = all;
      },
      at);
  return mine;
}
inline bool __any_sync(unsigned mask, bool vote, std::source_location at = std::source_location::current()) {
  return __ballot_sync(mask, vote, at) != 0;
}
inline void __threadfence_system() {}
[[noreturn]] inline void __trap() { throw trireme::emulation::GridError("a kernel gave up: __trap()"); }

// Threads run one at a time, so these are atomic.
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> more) {
  const T before = *at;
  *at = static_cast<T>(before + more);
  return before;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> other) {
  const T before = *at;
  *at = std::max(before, other);
  return before;
}

// The library. Streams are threads; see runtime.cpp.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventDefault = 0, cudaEventBlockingSync = 1;
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  int major, minor, multiProcessorCount;
  size_t totalGlobalMem, sharedMemPerBlockOptin;
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetPCIBusId(char* bus, int size, int device);
cudaError_t cudaMalloc(void** memory, size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
constexpr unsigned cudaHostRegisterMapped = 2;
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaHostGetDevicePointer(void** on_gpu, void* memory, unsigned flags);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

struct cudaLaunchAttribute {};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int threads, size_t shared_bytes) {
  *blocks = trireme::emulation::blocks_at_once(reinterpret_cast<const void*>(kernel), static_cast<size_t>(threads), shared_bytes);
  return cudaSuccess;
}

namespace trireme::emulation {
// Enqueues work to a stream's thread; with nullptr, waits for all streams and runs it here. In a
// graph each launch runs it; `make` then makes work that depends on the time of enqueueing.
cudaError_t in_stream(cudaStream_t stream, const std::function<void()>& work);
cudaError_t in_stream_anew(cudaStream_t stream, const std::function<std::function<void()>()>& make);
cudaError_t refuse_launch(const std::string& problem);  // cudaErrorLaunchOutOfResources, with these words
void check_guards();  // GridError if something was written just before or after memory of cudaMalloc
}  // namespace trireme::emulation

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  const auto dims = [](dim3 d) { return trireme::emulation::Dims{d.x, d.y, d.z}; };
  const std::string lacking =
      trireme::emulation::lacking_registers(reinterpret_cast<const void*>(kernel), dims(config->blockDim).count());
  if (!lacking.empty()) return trireme::emulation::refuse_launch(lacking);
  return trireme::emulation::in_stream(
      config->stream, [kernel, grid = dims(config->gridDim), block = dims(config->blockDim), shared = config->dynamicSmemBytes,
                       held = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
        trireme::emulation::run_grid(grid, block, shared, [&] { std::apply(kernel, held); });
        trireme::emulation::check_guards();
      });
}
