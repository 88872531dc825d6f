// NCCL over MPI. Like NCCL, it works in the order of streams, runs the work of one communicator in
// the order of the calls, and lets a message wait for its receiver. It detects ranks that make
// different calls, or of which only some capture them into a graph.
//
// TRIREME_NCCL_ORDER=DIRECTORY: each rank writes the order of its calls to rank-R, a line for each:
// the communicator's members and number, and the call's number. Tests check that orders agree.
#include <nccl.h>

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "parallel/mpi_comm.h"
#include "test/emulation/grid.h"
#include "test/emulation/stream.h"

using trireme::ok;
using trireme::wait_all;
using trireme::emulation::GridError;

struct ncclComm {
  MPI_Comm group = MPI_COMM_NULL;
  int rank = 0, size = 1;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t handed_over = 0, done = 0;
  int registered = 0;  // memories
  std::string name{};  // its members and its number among those of the same members
};

namespace {

std::set<const void*> allocated;  // by ncclMemAlloc

constexpr int kTag = 20000;  // tag of messages on MPI_COMM_WORLD that nobody else uses

size_t bytes_of(ncclDataType_t type) { return type == ncclBfloat16 ? 2 : 4; }

// An operation that a rank is about to perform.
struct Deed {
  int kind, type, more;
  size_t count;
  bool captured;
  bool operator==(const Deed&) const = default;
};

std::vector<std::byte> gathered(ncclComm_t comm, const void* mine, size_t bytes) {
  std::vector<std::byte> all(bytes * static_cast<size_t>(comm->size));
  std::vector<MPI_Request> request(1);
  const int n = trireme::count_of(static_cast<int64_t>(bytes));
  ok(MPI_Iallgather(mine, n, MPI_BYTE, all.data(), n, MPI_BYTE, comm->group, request.data()));
  wait_all(request);
  return all;
}

void expect_same(ncclComm_t comm, const Deed& deed) {
  const std::vector<std::byte> all = gathered(comm, &deed, sizeof deed);
  for (int r = 0; r < comm->size; ++r) {
    Deed theirs{};
    std::memcpy(&theirs, all.data() + static_cast<size_t>(r) * sizeof deed, sizeof deed);
    if (theirs != deed) throw GridError("NCCL: rank " + std::to_string(r) + " does something else");
  }
}

bool captures(cudaStream_t stream) { return stream != nullptr && stream->capture != nullptr; }

// Sets comm->name.
void name_members(ncclComm_t comm) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  ok(MPI_Comm_group(MPI_COMM_WORLD, &world));
  ok(MPI_Comm_group(comm->group, &group));
  std::vector<int> ranks(static_cast<size_t>(comm->size)), members(ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  ok(MPI_Group_translate_ranks(group, comm->size, ranks.data(), world, members.data()));
  ok(MPI_Group_free(&group));
  ok(MPI_Group_free(&world));
  for (const int member : members) comm->name += std::to_string(member) + ",";
  static std::map<std::string, int> made;
  comm->name += "#" + std::to_string(made[comm->name]++);
}

void note_order(const ncclComm& comm, uint64_t call) {
  static std::mutex mutex;
  static std::ofstream file = [] {
    const char* directory = std::getenv("TRIREME_NCCL_ORDER");
    int rank = 0;
    ok(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    return directory == nullptr ? std::ofstream() : std::ofstream(directory + std::string("/rank-") + std::to_string(rank));
  }();
  const std::lock_guard lock(mutex);
  if (file.is_open()) file << comm.name << " " << call << std::endl;
}

// Runs in the stream's order and the communicator's; in a graph, in the order of its launch.
ncclResult_t hand_over(ncclComm_t comm, cudaStream_t stream, const std::function<void()>& work) {
  const auto make = [comm, work] {
    const std::lock_guard handing(comm->mutex);
    note_order(*comm, comm->handed_over);
    return [comm, work, mine = comm->handed_over++] {
      {
        std::unique_lock lock(comm->mutex);
        comm->changed.wait(lock, [&] { return comm->done == mine; });
      }
      struct Done {
        ncclComm_t comm;
        ~Done() {
          const std::lock_guard lock(comm->mutex);
          ++comm->done;
          comm->changed.notify_all();
        }
      } const done{comm};
      work();
    };
  };
  return trireme::emulation::in_stream_anew(stream, make) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

template <class T>
void reduce(const std::byte* all, void* to, size_t stride, size_t count, int ranks, bool max) {
  for (size_t i = 0; i < count; ++i) {
    double result = 0;
    for (int r = 0; r < ranks; ++r) {
      T addend;
      std::memcpy(&addend, all + (static_cast<size_t>(r) * stride + i) * sizeof(T), sizeof(T));
      const double value = static_cast<float>(addend);
      result = r == 0 ? value : max ? std::fmax(result, value) : result + value;  // as a GPU's: a NaN loses
    }
    static_cast<T*>(to)[i] = static_cast<T>(static_cast<float>(result));
  }
}

void reduce_all(ncclComm_t comm, const void* from, void* to, size_t total, size_t first, size_t count, ncclDataType_t type,
                ncclRedOp_t op) {
  const std::vector<std::byte> all = gathered(comm, from, total * bytes_of(type));
  const std::byte* const begin = all.data() + first * bytes_of(type);
  if (type == ncclBfloat16)
    reduce<trireme::Bf16>(begin, to, total, count, comm->size, op == ncclMax);
  else if (type == ncclFloat32)
    reduce<float>(begin, to, total, count, comm->size, op == ncclMax);
  else
    throw GridError("NCCL: sums of this type are not emulated");
}

struct Message {
  bool sends;
  void* data;
  size_t bytes;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
};
thread_local int depth = 0;
thread_local std::vector<Message> messages;

// Runs all of them concurrently, as a group requires.
void exchange(const std::vector<Message>& all) {
  std::vector<MPI_Request> requests(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Message& m = all[i];
    const int n = trireme::count_of(static_cast<int64_t>(m.bytes));
    ok(m.sends ? MPI_Issend(m.data, n, MPI_BYTE, m.peer, 0, m.comm->group, &requests[i])
               : MPI_Irecv(m.data, n, MPI_BYTE, m.peer, 0, m.comm->group, &requests[i]));
  }
  wait_all(requests);
}

ncclResult_t close_group() {
  const std::vector<Message> all = std::exchange(messages, {});
  if (all.empty()) return ncclSuccess;
  for (const Message& m : all)
    if (m.comm != all.front().comm || m.stream != all.front().stream) return ncclInvalidUsage;
  return hand_over(all.front().comm, all.front().stream, [all] { exchange(all); });
}

ncclResult_t add(const Message& message) {
  messages.push_back(message);
  return depth > 0 ? ncclSuccess : close_group();
}

}  // namespace

// Number and maker of the group.
struct Id {
  int number, maker;
};

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  Id made{.number = number++ % 1000, .maker = 0};
  ok(MPI_Comm_rank(MPI_COMM_WORLD, &made.maker));
  std::memcpy(id->internal, &made, sizeof made);
  return ncclSuccess;
}

// Every rank sends its address to the maker; the maker sends all addresses to every rank.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId unique, int rank) {
  Id id{};
  std::memcpy(&id, unique.internal, sizeof id);
  const int tag = kTag + 2 * id.number;
  int mine = 0;
  ok(MPI_Comm_rank(MPI_COMM_WORLD, &mine));
  std::vector<int> members(static_cast<size_t>(ranks), mine);
  if (mine == id.maker) {
    for (int i = 1; i < ranks; ++i) {
      int told[2];
      ok(MPI_Recv(told, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      members.at(static_cast<size_t>(told[0])) = told[1];
    }
    for (const int member : members)
      if (member != mine) ok(MPI_Send(members.data(), ranks, MPI_INT, member, tag + 1, MPI_COMM_WORLD));
  } else {
    const int told[2] = {rank, mine};
    ok(MPI_Send(told, 2, MPI_INT, id.maker, tag, MPI_COMM_WORLD));
    ok(MPI_Recv(members.data(), ranks, MPI_INT, id.maker, tag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  ok(MPI_Comm_group(MPI_COMM_WORLD, &world));
  ok(MPI_Group_incl(world, ranks, members.data(), &group));
  auto made = std::make_unique<ncclComm>();
  made->rank = rank, made->size = ranks;
  ok(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made->group));
  ok(MPI_Group_free(&group));
  ok(MPI_Group_free(&world));
  name_members(made.get());
  *comm = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  auto made = std::make_unique<ncclComm>();
  ok(MPI_Comm_split(comm->group, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &made->group));
  *part = nullptr;
  if (made->group == MPI_COMM_NULL) return ncclSuccess;
  ok(MPI_Comm_rank(made->group, &made->rank));
  ok(MPI_Comm_size(made->group, &made->size));
  name_members(made.get());
  *part = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::unique_ptr<ncclComm> owned(comm);
  if (comm->registered != 0) throw GridError("NCCL: a communicator goes before the memory that it knows");
  std::unique_lock lock(comm->mutex);
  comm->changed.wait(lock, [&] { return comm->done == comm->handed_over; });
  ok(MPI_Comm_free(&comm->group));
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }  // its waits end with the process

ncclResult_t ncclGetVersion(int* version) { return *version = 22000, ncclSuccess; }
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (cudaMalloc(memory, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  allocated.insert(*memory);
  return ncclSuccess;
}
// Unlike cudaFree, NCCL does not wait for kernels.
ncclResult_t ncclMemFree(void* memory) {
  if (allocated.erase(memory) == 0) return ncclInvalidUsage;
  if (trireme::emulation::pending_works() > 0)
    trireme::emulation::attempt([] { throw GridError("NCCL: memory goes while kernels may use it"); });
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
// NCCL registers other memory, too, and copies it all the same.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  if (bytes == 0 || !allocated.contains(memory)) return ncclInvalidUsage;
  *handle = memory;
  ++comm->registered;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  --comm->registered;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) { return *error = ncclSuccess; }

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclInvalidUsage ? "invalid usage" : "unhandled error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --depth == 0 ? close_group() : ncclSuccess; }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return hand_over(comm, stream, [=, captured = captures(stream)] {
    expect_same(comm, {.kind = 0, .type = type, .more = op, .count = count, .captured = captured});
    reduce_all(comm, from, to, count, 0, count, type, op);
  });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return hand_over(comm, stream, [=, captured = captures(stream)] {
    expect_same(comm, {.kind = 1, .type = type, .more = op, .count = count, .captured = captured});
    reduce_all(comm, from, to, count * static_cast<size_t>(comm->size), count * static_cast<size_t>(comm->rank), count, type, op);
  });
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return hand_over(comm, stream, [=, captured = captures(stream)] {
    expect_same(comm, {.kind = 2, .type = type, .more = 0, .count = count, .captured = captured});
    const std::vector<std::byte> all = gathered(comm, from, count * bytes_of(type));
    std::memcpy(to, all.data(), all.size());
  });
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return hand_over(comm, stream, [=, captured = captures(stream)] {
    expect_same(comm, {.kind = 3, .type = type, .more = root, .count = count, .captured = captured});
    const size_t bytes = count * bytes_of(type);
    const std::vector<std::byte> all = gathered(comm, from, bytes);
    std::memcpy(to, all.data() + static_cast<size_t>(root) * bytes, bytes);
  });
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return hand_over(comm, stream, [=, captured = captures(stream)] {
    expect_same(comm, {.kind = 4, .type = type, .more = 64 * op + root, .count = count, .captured = captured});
    std::vector<std::byte> sum(count * bytes_of(type));
    reduce_all(comm, from, sum.data(), count, 0, count, type, op);
    if (comm->rank == root) std::memcpy(to, sum.data(), sum.size());
  });
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({.sends = true,
              .data = const_cast<void*>(from),
              .bytes = count * bytes_of(type),
              .peer = peer,
              .comm = comm,
              .stream = stream});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({.sends = false, .data = to, .bytes = count * bytes_of(type), .peer = peer, .comm = comm, .stream = stream});
}
