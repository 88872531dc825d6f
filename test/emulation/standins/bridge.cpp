// Work that stand-ins enqueue runs on the emulated GPU.
#include <cuda_runtime.h>

#include "kernels/cuda/host.h"
#include "test/emulation/standins/enqueue.h"

extern "C" void trireme_enqueue(void* stream, void* state, void (*work)(void*)) {
  trireme::ok(trireme::emulation::in_stream(static_cast<cudaStream_t>(stream), [=] { work(state); }));
}
