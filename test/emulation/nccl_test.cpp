// The emulated NCCL refuses ranks that make different calls, and knows orders of which each rank's
// GPU could wait for another's.
#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/memory.h"
#include "kernels/ops/fill.h"
#include "parallel/gpu_group.h"
#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/emulation/nccl_order.h"
#include "test/emulation/stream.h"
#include "test/parallel/launch.h"

namespace trireme {
namespace {

constexpr size_t kCount = 8;

// A rank of two, with two communicators and a stream.
struct Pair {
  World world;
  ncclComm_t one = nullptr, other = nullptr;
  cudaStream_t stream = nullptr;
  float* x = nullptr;
  Pair() {
    const Mesh mesh(world, {});
    for (ncclComm_t* comm : {&one, &other}) {
      ncclUniqueId id{};
      if (first()) ncclGetUniqueId(&id);
      const std::string told = broadcast(mesh.all(), std::string(id.internal, sizeof id.internal));
      std::memcpy(id.internal, told.data(), told.size());
      ncclCommInitRank(comm, 2, id, static_cast<int>(world.rank()));
    }
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    void* memory = nullptr;
    cudaMalloc(&memory, kCount * sizeof(float));
    x = static_cast<float*>(memory);
  }
  bool first() const { return world.rank() == 0; }
  void sum(ncclComm_t comm, size_t count, ncclDataType_t type = ncclFloat32) const {
    ncclAllReduce(x, x, count, type, ncclSum, comm, stream);
  }
  // Prints CUDA's words; without waiting for the other rank.
  [[noreturn]] void end() const {
    std::printf("rank %d: %s\n", static_cast<int>(world.rank()), cudaGetErrorString(cudaStreamSynchronize(stream)));
    std::fflush(nullptr);
    usleep(200000);
    std::_Exit(0);
  }
};

int gpu_at_init = -1;  // the current one when MPI started

}  // namespace
}  // namespace trireme

// An MPI that was built for CUDA.
extern "C" int MPIX_Query_cuda_support() { return 1; }
extern "C" int PMPI_Init_thread(int*, char***, int, int*);
extern "C" int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  cudaGetDevice(&trireme::gpu_at_init);
  return PMPI_Init_thread(count, words, required, provided);
}

namespace trireme {

TEST_CASE("three ranks of a node", "[.launched]") {
  const World world;
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
  CHECK(gpu_at_init == world.local_rank() % gpus);
}

TEST_CASE("an MPI that was built for CUDA finds each rank on its own GPU") {
  const auto [out, status] = test::output_of(test::mpirun(3, "three ranks of a node"));
  INFO(out);
  CHECK(status == 0);
}

TEST_CASE("two ranks that sum different counts", "[.launched]") {
  const Pair pair;
  pair.sum(pair.one, pair.first() ? kCount : kCount / 2);
  pair.end();
}
TEST_CASE("two ranks that sum different types", "[.launched]") {
  const Pair pair;
  pair.sum(pair.one, 4, pair.first() ? ncclFloat32 : ncclBfloat16);
  pair.end();
}
TEST_CASE("two ranks of which one sums and one gathers", "[.launched]") {
  const Pair pair;
  if (pair.first())
    pair.sum(pair.one, 4);
  else
    ncclAllGather(pair.x + 4, pair.x, 4, ncclFloat32, pair.one, pair.stream);
  pair.end();
}
TEST_CASE("two ranks of which one captures its sum", "[.launched]") {
  const Pair pair;
  if (pair.first()) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    cudaStreamBeginCapture(pair.stream, cudaStreamCaptureModeThreadLocal);
    pair.sum(pair.one, kCount);
    cudaStreamEndCapture(pair.stream, &graph);
    cudaGraphInstantiateWithFlags(&made, graph, 0);
    cudaGraphLaunch(made, pair.stream);
  } else {
    pair.sum(pair.one, kCount);
  }
  pair.end();
}
TEST_CASE("two ranks that use two communicators in the same order", "[.launched]") {
  const Pair pair;
  pair.sum(pair.one, kCount), pair.sum(pair.other, kCount);
  pair.end();
}
TEST_CASE("two ranks that use two communicators in opposite order", "[.launched]") {
  const Pair pair;
  pair.sum(pair.first() ? pair.one : pair.other, kCount);
  pair.sum(pair.first() ? pair.other : pair.one, kCount);
  usleep(300000);  // the emulated GPU waits for ever
  std::_Exit(0);
}

// A fill and a slow work are enqueued when the scope ends.
TEST_CASE("memory of NCCL goes once the kernels that use it are done") {
  Device device(Place::cuda);
  device.allocate_by(known_memory_allocator().value());
  {
    Arena arena(device, 1024, "weights");
    run(device.compute(), Fill{.x = arena.take(Dtype::f32, {8}), .value = 1});
    emulation::in_stream(stream_of(*device.compute().cuda().lane), [] { usleep(50000); });
    CHECK(emulation::pending_works() > 0);
  }
  CHECK(emulation::pending_works() == 0);
  CHECK_NOTHROW(device.compute().finish());
}

TEST_CASE("memory that NCCL does not have is named with its purpose") {
  Device device(Place::cuda);
  device.allocate_by(known_memory_allocator().value());
  CHECK_THROWS_WITH(Arena(device, int64_t{1} << 40, "weights"),
                    ContainsSubstring("out of memory: 1099511627776 bytes of the GPU for weights; lower train.microbatch"));
}

TEST_CASE("the emulated NCCL refuses ranks that make different calls") {
  for (const char* name : {"two ranks that sum different counts", "two ranks that sum different types",
                           "two ranks of which one sums and one gathers", "two ranks of which one captures its sum"}) {
    const auto [out, status] = test::output_of(test::mpirun(2, name));
    INFO(name << "\n" << out);
    CHECK_THAT(out, ContainsSubstring("rank 0: NCCL: rank 1 does something else"));
    CHECK_THAT(out, ContainsSubstring("rank 1: NCCL: rank 0 does something else"));
  }
}

TEST_CASE("communicators in opposite order are found") {
  for (const bool opposite : {false, true}) {
    const Scratch directory;
    const std::string name = opposite ? "*in opposite order" : "*in the same order";
    const auto [out, status] = test::output_of("TRIREME_NCCL_ORDER=" + directory.path() + " " + test::mpirun(2, name));
    INFO(out);
    CHECK((emulation::circle_of_calls(directory.path()) != "") == opposite);
  }
}

}  // namespace trireme
