// GpuGroup by NCCL: a communicator for the collectives of the group, and one of two ranks for each
// link and channel, so that messages of one do not wait for another. All are created at the start
// in one order and exchange a first message: NCCL connects ranks lazily, which would block hosts in
// the middle of a step.
#include <nccl.h>

#include <array>
#include <exception>
#include <source_location>

#include "parallel/gpu_group.h"
#include "parallel/mpi_comm.h"

namespace trireme {
namespace {

void ok(ncclResult_t status, std::source_location at = std::source_location::current()) {
  if (status == ncclSuccess) return;
  std::string why = std::string("NCCL: ") + ncclGetErrorString(status);
  if (const char* more = ncclGetLastError(nullptr); more != nullptr && *more != '\0') why += std::string(": ") + more;
  if (status == ncclInvalidUsage) why += "; check that every rank has its own GPU; NCCL_DEBUG=WARN prints details";
  throw Error(why, at);
}
void ok(cudaError_t status, std::source_location at = std::source_location::current()) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + cudaGetErrorString(status), at);
}

constexpr int kRegisters = 21900;  // version 2.19, the first that can register memory

bool registers_memory() {
  int version = 0;
  ok(ncclGetVersion(&version));
  return version >= kRegisters;
}

// nullptr if the GPU has less left: NCCL does not say why it fails.
std::byte* allocate_known(int64_t bytes) {
  constexpr int64_t kGranule = 2 << 20;  // to which it rounds up
  void* memory = nullptr;
  if (const ncclResult_t status = ncclMemAlloc(&memory, static_cast<size_t>(bytes)); status != ncclSuccess) {
    (void)cudaGetLastError();  // or the next call would report it
    if (gpu_memory().free < bytes + kGranule) return nullptr;
    ok(status);
  }
  ok(cudaMemset(memory, 0, static_cast<size_t>(bytes)));
  ok(cudaDeviceSynchronize());
  return static_cast<std::byte*>(memory);
}

// Unlike cudaFree, ncclMemFree takes the memory from kernels that still use it. After an error they may wait for other ranks for
// ever: it then goes with the process.
void free_known(std::byte* memory) noexcept {
  if (std::uncaught_exceptions() > 0 || gpu_is_stuck()) return;
  cudaDeviceSynchronize();
  ncclMemFree(memory);
}

ncclDataType_t type_of(Dtype dtype) { return dtype == Dtype::bf16 ? ncclBfloat16 : dtype == Dtype::f32 ? ncclFloat32 : ncclInt32; }
size_t count(const Tensor& x) { return static_cast<size_t>(x.size()); }

// Owns a communicator. After an error it does not wait for pending work.
class Own {
 public:
  Own() = default;
  ~Own() {
    if (comm_ == nullptr) return;
    if (std::uncaught_exceptions() > uncaught_)
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  ncclComm_t* put() { return &comm_; }
  ncclComm_t get() const { return comm_; }

 private:
  ncclComm_t comm_ = nullptr;
  int uncaught_ = std::uncaught_exceptions();
};

// Groups the NCCL calls that `calls` makes.
void together(const auto& calls) {
  ok(ncclGroupStart());
  calls();
  ok(ncclGroupEnd());
}

class NcclGroup : public GpuGroup {
 public:
  NcclGroup(const Comm& comm, const GpuUse& use) : axis_(comm.axis()), rank_(comm.rank()), size_(comm.size()) {
    ncclUniqueId id{};
    if (rank_ == 0) ok(ncclGetUniqueId(&id));
    trireme::ok(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, handle(comm)));
    ok(ncclCommInitRank(all_.put(), static_cast<int>(size_), id, static_cast<int>(rank_)));
    const Greeting greeting(size_);
    greet_all(greeting);
    if (use.ordered || use.exchanges) exchange_greetings(greeting);
    if (use.ring) open_links(greeting, use.turns ? 4 : 2);
  }

  void all_reduce(CudaLane& lane, Tensor x, Sum sum) override {
    ok(ncclAllReduce(x.data(), x.data(), count(x), type_of(x.dtype()), sum == Sum::max ? ncclMax : ncclSum, all_.get(),
                     stream_of(lane)));
  }
  void reduce_scatter(CudaLane& lane, Tensor part, Tensor all) override {
    ok(ncclReduceScatter(all.data(), part.data(), count(part), type_of(part.dtype()), ncclSum, all_.get(), stream_of(lane)));
  }
  void all_gather(CudaLane& lane, Tensor all, Tensor part) override {
    ok(ncclAllGather(part.data(), all.data(), count(part), type_of(part.dtype()), all_.get(), stream_of(lane)));
  }
  void broadcast(CudaLane& lane, Tensor x, int64_t root) override {
    ok(ncclBroadcast(x.data(), x.data(), count(x), type_of(x.dtype()), static_cast<int>(root), all_.get(), stream_of(lane)));
  }
  void reduce(CudaLane& lane, Tensor sum, Tensor x, int64_t root) override {
    ok(ncclReduce(x.data(), sum.data(), count(x), type_of(x.dtype()), ncclSum, static_cast<int>(root), all_.get(),
                  stream_of(lane)));
  }
  void exchange(CudaLane& lane, const std::vector<Tensor>& to, const std::vector<Tensor>& from) override {
    together([&] {
      for (int64_t r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        const Tensor &theirs = to[static_cast<size_t>(r)], &mine = from[static_cast<size_t>(r)];
        ok(ncclSend(mine.data(), count(mine), type_of(mine.dtype()), static_cast<int>(r), all_.get(), stream_of(lane)));
        ok(ncclRecv(theirs.data(), count(theirs), type_of(theirs.dtype()), static_cast<int>(r), all_.get(), stream_of(lane)));
      }
    });
  }
  void send(CudaLane& lane, Tensor x, int64_t peer, Channel channel) override {
    const Link& link = find(channel, rank_, peer);
    ok(ncclSend(x.data(), count(x), type_of(x.dtype()), link.peer, link.comm.get(), stream_of(lane)));
  }
  void receive(CudaLane& lane, Tensor x, int64_t peer, Channel channel) override {
    const Link& link = find(channel, peer, rank_);
    ok(ncclRecv(x.data(), count(x), type_of(x.dtype()), link.peer, link.comm.get(), stream_of(lane)));
  }
  void* know(std::byte* memory, int64_t bytes) override {
    void* known = nullptr;
    if (registers_memory() && bytes > 0) ok(ncclCommRegister(all_.get(), memory, static_cast<size_t>(bytes), &known));
    return known;
  }
  void forget(void* known) noexcept override { ncclCommDeregister(all_.get(), known); }

  void check() const override {
    check(all_);
    for (const auto& channel : links_)
      for (const Link& link : channel) check(link.comm);
    check(tied_.comm);
  }

 private:
  void check(const Own& comm) const {
    if (comm.get() == nullptr) return;
    ncclResult_t error = ncclSuccess;
    ok(ncclCommGetAsyncError(comm.get(), &error));
    if (error != ncclSuccess)
      throw Error(text("NCCL: the connection along ", axis_, " is lost (", ncclGetErrorString(error),
                       "): a rank may have ended; see its output"));
  }
  struct Link {
    Own comm;
    int64_t lower = -1;  // joins this rank and the next, or the last and the first; -1: unused
    int peer = 0;        // the other rank's number in the communicator
  };
  // A small buffer for first messages.
  struct Greeting {
    cudaStream_t stream = nullptr;
    void* memory = nullptr;  // 2 floats, then one for each rank
    explicit Greeting(int64_t ranks) {
      const auto bytes = static_cast<size_t>(4 * (2 + ranks));
      ok(cudaMalloc(&memory, bytes));
      ok(cudaMemset(memory, 0, bytes));
      ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ~Greeting() {
      cudaStreamDestroy(stream);
      cudaFree(memory);
    }
    Greeting(const Greeting&) = delete;
    Greeting& operator=(const Greeting&) = delete;
    void finish() const { ok(cudaStreamSynchronize(stream)); }
  };

  // Runs each collective once, since each sets up connections of its own.
  void greet_all(const Greeting& greeting) {
    auto* const one = static_cast<float*>(greeting.memory);
    float* const all = one + 2;
    ok(ncclAllReduce(one, one, 1, ncclFloat32, ncclSum, all_.get(), greeting.stream));
    ok(ncclReduceScatter(all, one, 1, ncclFloat32, ncclSum, all_.get(), greeting.stream));
    ok(ncclAllGather(one, all, 1, ncclFloat32, all_.get(), greeting.stream));
    ok(ncclBroadcast(one, one, 1, ncclFloat32, 0, all_.get(), greeting.stream));
    ok(ncclReduce(one, one, 1, ncclFloat32, ncclSum, 0, all_.get(), greeting.stream));
    greeting.finish();
  }

  // Messages among all, which connect each rank with each other: as many connections as ranks.
  void exchange_greetings(const Greeting& greeting) {
    auto* const one = static_cast<float*>(greeting.memory);
    float* const all = one + 2;
    together([&] {
      for (int r = 0; r < static_cast<int>(size_); ++r) {
        if (r == static_cast<int>(rank_)) continue;
        ok(ncclSend(one, 1, ncclFloat32, r, all_.get(), greeting.stream));
        ok(ncclRecv(all + r, 1, ncclFloat32, r, all_.get(), greeting.stream));
      }
    });
    greeting.finish();
  }

  // Opens the links with even numbers, with odd numbers, and between last and first, each kind by
  // one split of the group for each channel.
  void open_links(const Greeting& greeting, size_t channels) {
    const int64_t last = size_ - 1;
    for (size_t channel = 0; channel < channels; ++channel) {
      for (const int64_t parity : {0, 1}) {
        const int64_t lower = rank_ % 2 == parity ? rank_ : rank_ - 1;
        open(links_[channel][static_cast<size_t>(parity)], lower >= 0 && lower < last ? lower : -1, greeting);
      }
      open(links_[channel][2], rank_ == 0 || rank_ == last ? last : -1, greeting);
    }
    open(tied_, rank_ == 0 || rank_ == last ? last : -1, greeting);
  }
  void open(Link& link, int64_t lower, const Greeting& greeting) {
    link.lower = lower;
    const int color = lower < 0 ? NCCL_SPLIT_NOCOLOR : static_cast<int>(lower);
    // A receive is posted long before its message is sent and occupies multiprocessors while it
    // waits: allow few.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 1, config.maxCTAs = 4;
    ok(ncclCommSplit(all_.get(), color, static_cast<int>(rank_), link.comm.put(), &config));
    if (lower < 0) return;
    link.peer = rank_ < other(lower) ? 1 : 0;
    auto* const out = static_cast<float*>(greeting.memory);
    together([&] {
      ok(ncclSend(out, 1, ncclFloat32, link.peer, link.comm.get(), greeting.stream));
      ok(ncclRecv(out + 1, 1, ncclFloat32, link.peer, link.comm.get(), greeting.stream));
    });
    greeting.finish();
  }
  int64_t other(int64_t lower) const { return lower == rank_ ? (lower + 1) % size_ : lower; }

  const Link& find(Channel channel, int64_t from, int64_t to) const {
    const int64_t last = size_ - 1;
    if (channel == Channel::tied && tied_.lower == last && from + to == last) return tied_;
    const bool up = channel == Channel::forward || channel == Channel::turned_backward;
    const int64_t lower = up ? from : to;
    if (channel != Channel::tied && (up ? to : from) == (lower + 1) % size_)
      for (const Link& link : links_[static_cast<size_t>(channel)])
        if (link.lower == lower) return link;
    throw Error(text("a message from ", from, " to ", to, " along ", axis_, ", but they have no link"));
  }

  std::string axis_;
  int64_t rank_, size_;
  Own all_;
  std::array<std::array<Link, 3>, 4> links_;  // by channel
  Link tied_;
};

}  // namespace

std::optional<GpuAllocator> known_memory_allocator() {
  if (!registers_memory()) return std::nullopt;
  return GpuAllocator{.allocate = allocate_known, .free = free_known};
}

std::unique_ptr<GpuGroup> open_gpu_group(const Comm& comm, const GpuUse& use) { return std::make_unique<NcclGroup>(comm, use); }

}  // namespace trireme
