// Memory, streams and events of the emulated CUDA library. A stream is a thread with a queue, so
// that a forgotten wait shows here, too. Device memory begins as NaN and has guards at both ends.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "test/emulation/fiber.h"
#include "test/emulation/stream.h"

namespace {

using trireme::emulation::allow;
using trireme::emulation::attempt;
using trireme::emulation::fact;
using trireme::emulation::forbid;
using trireme::emulation::GridError;

constexpr size_t kGuard = 256;
constexpr int kDevices = 8;
constexpr int kGeneration = 9;  // major compute capability
int multiprocessors_emulated() { return static_cast<int>(fact("TRIREME_EMULATED_MULTIPROCESSORS", 4)); }
size_t memory_emulated() { return fact("TRIREME_EMULATED_MIB", 8192) << 20; }
thread_local int current_device = 0;  // devices are identical
constexpr std::byte kUnset{0xff}, kUntouched{0xa5};

}  // namespace

namespace {

struct Library {
  std::mutex mutex;
  std::map<std::byte*, size_t> memory;  // of cudaMalloc, without its guards
  std::set<std::shared_ptr<CUstream_st>> streams;
  std::set<void*> registered;  // memory of others that kernels access
  cudaError_t last = cudaSuccess;
  std::atomic<cudaError_t> sticky = cudaSuccess;
  std::atomic<int64_t> pending = 0;  // works enqueued and not done
  std::string problem;               // message of the sticky error
  std::string refused;               // that of the launch refused last
};
Library& library() {
  static Library one;
  return one;
}

cudaError_t told(cudaError_t error) {
  if (error == cudaSuccess && library().sticky == cudaSuccess) return error;
  const std::lock_guard lock(library().mutex);
  if (library().sticky != cudaSuccess) error = library().sticky;
  if (error != cudaSuccess) library().last = error;
  return error;
}

void execute(cudaStream_t stream) {
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [&] { return stream->closing || !stream->queue.empty(); });
    if (stream->queue.empty()) return;
    const std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.unlock();
    attempt(work);
    lock.lock();
    ++stream->done;
    --library().pending;
    stream->changed.notify_all();
  }
}

cudaError_t give_back(void* memory) {
  const std::lock_guard lock(library().mutex);
  const auto found = library().memory.find(static_cast<std::byte*>(memory));
  if (found == library().memory.end()) return cudaErrorInvalidValue;
  auto* const begin = static_cast<std::byte*>(memory) - kGuard;
  allow(begin, found->second + 2 * kGuard);
  library().memory.erase(found);
  std::free(begin);
  return cudaSuccess;
}

void wait_for(cudaStream_t stream) {
  std::unique_lock lock(stream->mutex);
  stream->changed.wait(lock, [&, all = stream->pushed] { return stream->done >= all; });
}

}  // namespace

namespace trireme::emulation {

void attempt(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::lock_guard lock(library().mutex);
    if (library().sticky == cudaSuccess) library().problem = error.what();
    library().sticky = cudaErrorLaunchFailure;
  }
}

cudaError_t in_stream_anew(cudaStream_t stream, const std::function<Work()>& make) {
  if (captured(stream, make)) return told(cudaSuccess);
  Work work = make();
  if (stream == nullptr) {
    if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
    attempt(work);
  } else {
    const std::lock_guard lock(stream->mutex);
    ++library().pending;
    stream->queue.push_back(std::move(work));
    ++stream->pushed;
    stream->changed.notify_all();
  }
  return told(cudaSuccess);
}
cudaError_t in_stream(cudaStream_t stream, const Work& work) {
  return in_stream_anew(stream, [work] { return work; });
}

int64_t pending_works() { return library().pending; }

cudaError_t refuse_launch(const std::string& problem) {
  {
    const std::lock_guard lock(library().mutex);
    library().refused = problem;
  }
  return told(cudaErrorLaunchOutOfResources);
}

// If the address sanitizer checks each access, guards are poisoned.
void check_guards() {
  if (allow(nullptr, 0)) return;
  const std::lock_guard lock(library().mutex);
  for (const auto& [memory, bytes] : library().memory)
    for (size_t i = 0; i < kGuard; ++i)
      if (memory[bytes + i] != kUntouched || *(memory - 1 - i) != kUntouched)
        throw GridError("a write outside of " + std::to_string(bytes) + " bytes of device memory, " + std::to_string(i) +
                        (memory[bytes + i] != kUntouched ? " behind" : " in front"));
}

}  // namespace trireme::emulation

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchFailure:
      return library().problem.c_str();
    case cudaErrorLaunchOutOfResources:
      return library().refused.c_str();
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return "invalid argument";
  }
}
cudaError_t cudaGetLastError() {
  const std::lock_guard lock(library().mutex);
  return library().sticky != cudaSuccess ? library().sticky.load() : std::exchange(library().last, cudaSuccess);
}
cudaError_t cudaGetDeviceCount(int* count) { return *count = kDevices, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return told(cudaErrorInvalidValue);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount            ? multiprocessors_emulated()
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? static_cast<int>(trireme::emulation::most_shared())
                                                                  : kGeneration;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {.name = "emulated GPU",
                 .uuid = {.bytes = {'G', 'P', 'U', static_cast<char>(device)}},
                 .major = kGeneration,
                 .minor = 0,
                 .multiProcessorCount = multiprocessors_emulated(),
                 .totalGlobalMem = memory_emulated(),
                 .sharedMemPerBlockOptin = trireme::emulation::most_shared()};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(library().mutex);
  size_t taken = 0;
  for (const auto& [memory, bytes] : library().memory) taken += bytes;
  *total = memory_emulated(), *free = *total - std::min(*total, taken);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = trireme::emulation::refused_in_capture(); error != cudaSuccess) return told(error);
  if (library().pending == 0) return told(cudaSuccess);
  std::set<std::shared_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(library().mutex);
    streams = library().streams;
  }
  for (const auto& stream : streams) wait_for(stream.get());
  return told(cudaSuccess);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = trireme::emulation::refused_in_capture(); error != cudaSuccess) return told(error);
  if (bytes > memory_emulated()) return told(cudaErrorMemoryAllocation);
  const size_t all = (bytes + 2 * kGuard + 255) / 256 * 256;
  auto* begin = static_cast<std::byte*>(std::aligned_alloc(256, all));
  if (begin == nullptr) return told(cudaErrorMemoryAllocation);
  std::memset(begin, static_cast<int>(kUntouched), all);
  std::memset(begin + kGuard, static_cast<int>(kUnset), bytes);
  forbid(begin, kGuard), forbid(begin + kGuard + bytes, all - kGuard - bytes);
  const std::lock_guard lock(library().mutex);
  library().memory[begin + kGuard] = bytes;
  *memory = begin + kGuard;
  return cudaSuccess;
}
// It is on no bus, unless TRIREME_EMULATED_BUS says on which.
cudaError_t cudaDeviceGetPCIBusId(char* bus, int size, int) {
  const char* const address = std::getenv("TRIREME_EMULATED_BUS");
  if (address == nullptr || std::strlen(address) >= static_cast<size_t>(size)) return told(cudaErrorInvalidValue);
  std::strcpy(bus, address);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  cudaDeviceSynchronize();
  return give_back(memory);
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return trireme::emulation::in_stream(stream, [memory] {
    if (give_back(memory) != cudaSuccess) throw GridError("cudaFreeAsync of what cudaMalloc never gave");
  });
}
// Kernels can access it too, so it has guards.
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
// Memory that somebody else has mapped: each may be registered once. A real GPU sees whole pages only.
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  const bool fits = flags == cudaHostRegisterMapped && bytes > 0 && reinterpret_cast<uintptr_t>(memory) % 4096 == 0;
  return fits && library().registered.insert(memory).second ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostUnregister(void* memory) {
  cudaDeviceSynchronize();
  return library().registered.erase(memory) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostGetDevicePointer(void** on_gpu, void* memory, unsigned) {
  *on_gpu = memory;
  return library().registered.contains(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return trireme::emulation::in_stream(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) { return cudaMemsetAsync(memory, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return trireme::emulation::in_stream(stream, [=] { std::memset(memory, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto made = std::make_shared<CUstream_st>();
  made->thread = std::thread(execute, made.get());
  const std::lock_guard lock(library().mutex);
  library().streams.insert(made);
  *stream = made.get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::shared_ptr<CUstream_st> last;  // shared with those who wait for it now
  {
    const std::lock_guard lock(library().mutex);
    for (const auto& each : library().streams)
      if (each.get() == stream) last = each;
    library().streams.erase(last);
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->closing = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = trireme::emulation::refused_of_captured(stream); error != cudaSuccess) return told(error);
  if (stream == nullptr) return cudaDeviceSynchronize();
  wait_for(stream);
  return told(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = trireme::emulation::refused_of_captured(stream); error != cudaSuccess) return told(error);
  const std::lock_guard lock(stream->mutex);
  return stream->done < stream->pushed ? cudaErrorNotReady : told(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cudaDeviceSynchronize();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr && stream->capture != nullptr) return trireme::emulation::capture_record(event, stream);
  event->capture = nullptr;
  uint64_t number = 0;
  {
    const std::lock_guard lock(event->mutex);
    number = ++event->recorded;
  }
  return trireme::emulation::in_stream(stream, [event, number] {
    const std::lock_guard lock(event->mutex);
    event->reached = std::max(event->reached, number), event->when = std::chrono::steady_clock::now();
    event->changed.notify_all();
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto [yes, error] = trireme::emulation::capture_wait(stream, event); yes) return told(error);
  std::unique_lock lock(event->mutex);
  const uint64_t last = event->recorded;
  lock.unlock();
  return trireme::emulation::in_stream(stream, [event, last] {
    std::unique_lock inner(event->mutex);
    event->changed.wait(inner, [&] { return event->reached >= last; });
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::scoped_lock lock(begin->mutex, end->mutex);
  if (begin->reached < begin->recorded || end->reached < end->recorded) return told(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->reached >= event->recorded ? told(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&, all = event->recorded] { return event->reached >= all; });
  }
  return told(cudaSuccess);
}
