// Collectives on Place::cpu that move elements, over MPI. Scratch memory is a lane's workspace.
#include "parallel/mpi_messages.h"

#include <cstring>
#include <vector>

#include "kernels/device.h"
#include "parallel/collectives.h"
#include "parallel/mpi_comm.h"
#include "parallel/shared_memory.h"

namespace trireme {
namespace {

// Elements of one MPI message; longer transfers take several.
constexpr int64_t kMessage = 1 << 28;

struct PeerMessage {
  std::byte* data;
  int64_t bytes, peer;
  Channel channel;
};

enum class Way { out, in };

void exchange(const Comm& comm, Way way, const PeerMessage& message) {
  const auto& [data, bytes, peer, channel] = message;
  for (int64_t at = 0; at < bytes || at == 0; at += kMessage) {
    std::vector<MPI_Request> request(1);
    const int count = count_of(std::min(kMessage, bytes - at)), other = static_cast<int>(peer);
    const int tag = kTag + 1 + static_cast<int>(channel);
    ok(way == Way::out ? MPI_Isend(data + at, count, MPI_BYTE, other, tag, handle(comm), request.data())
                       : MPI_Irecv(data + at, count, MPI_BYTE, other, tag, handle(comm), request.data()));
    wait_all(request);
  }
}

// Copies shares from the memory `others` of all near ranks: all that each has gathered so far.
template <class Begin>
void copy_shares(const Comm& comm, std::byte* all, const std::vector<const std::byte*>& others, Begin begin) {
  const int64_t count = std::ssize(others);
  meet_near(comm);
  for (int64_t i = 1; i < count; ++i) {
    const int64_t source = (comm.rank() + i) % count;
    for (int64_t r = source; r < comm.size(); r += count)
      std::memcpy(all + begin(r), others[static_cast<size_t>(source)] + begin(r), static_cast<size_t>(begin(r + 1) - begin(r)));
  }
  meet_near(comm);
}

}  // namespace

void meet_near(const Comm& comm) {
  const auto [first, count] = near_ranks(comm);
  std::vector<MPI_Request> requests;
  for (int64_t r = first; r < first + count; ++r) {
    if (r == comm.rank()) continue;
    ok(MPI_Irecv(nullptr, 0, MPI_BYTE, static_cast<int>(r), kTag, handle(comm), &requests.emplace_back()));
    ok(MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(r), kTag, handle(comm), &requests.emplace_back()));
  }
  wait_all(requests);
}

// Gathers shares in a group divided into nodes: first from the ranks of the same local number on
// other nodes, then from the ranks of the own node, with all that these have gathered.
void gather_shares(const Comm& comm, std::byte* all, int64_t n, int64_t element) {
  const int64_t size = comm.size(), rank = comm.rank();
  const std::vector<const std::byte*> near = shared_by_near(comm, all, n * element);
  const int64_t locals = near.empty() ? comm.locals() : std::ssize(near), nodes = size / locals;
  const int64_t node = rank / locals, local = rank % locals;
  const auto begin = [&](int64_t r) { return share_begin(n, r, size) * element; };
  const auto bytes = [&](int64_t r) { return begin(r + 1) - begin(r); };
  std::vector<MPI_Request> requests;
  // Receives share `wanted` from rank `source` and sends share `mine` to rank `target`.
  const auto swap = [&](int64_t at, int64_t source, int64_t wanted, int64_t target, int64_t mine) {
    const auto piece = [&](int64_t r) { return count_of(std::clamp<int64_t>(bytes(r) - at, 0, kMessage)); };
    const auto place = [&](int64_t r) { return all + begin(r) + at; };
    if (piece(wanted) > 0)
      ok(MPI_Irecv(place(wanted), piece(wanted), MPI_BYTE, static_cast<int>(source), kTag, handle(comm), &requests.emplace_back()));
    if (piece(mine) > 0)
      ok(MPI_Isend(place(mine), piece(mine), MPI_BYTE, static_cast<int>(target), kTag, handle(comm), &requests.emplace_back()));
  };
  for (int64_t at = 0; at < bytes(0); at += kMessage) {  // the first share is one of the longest
    requests.clear();
    for (int64_t i = 1; i < nodes; ++i) {
      const int64_t source = (node + nodes - i) % nodes * locals + local, target = (node + i) % nodes * locals + local;
      swap(at, source, source, target, rank);
    }
    wait_all(requests);
    if (!near.empty()) continue;
    requests.clear();
    for (int64_t i = 1; i < locals; ++i)
      for (int64_t j = 0; j < nodes; ++j) {
        const int64_t source = (local + locals - i) % locals, target = (local + i) % locals;
        swap(at, node * locals + source, j * locals + source, node * locals + target, j * locals + local);
      }
    wait_all(requests);
  }
  if (!near.empty()) copy_shares(comm, all, near, begin);
}

void launch(const Comm& comm, const Cpu&, const AllGather& op) {
  auto* all = static_cast<std::byte*>(op.all.data());
  std::byte* mine = all + comm.rank() * op.part.bytes();
  if (mine != op.part.data()) std::memcpy(mine, op.part.data(), static_cast<size_t>(op.part.bytes()));
  if (comm.size() > 1) gather_shares(comm, all, op.all.size(), bytes_of(op.all.dtype()));
}

void launch(const Comm& comm, const Cpu&, const AllToAll& op) {
  const int64_t size = comm.size(), rank = comm.rank(), part = op.from.bytes() / size;
  auto* const to = static_cast<std::byte*>(op.to.data());
  auto* const from = static_cast<std::byte*>(op.from.data());
  std::memcpy(to + rank * part, from + rank * part, static_cast<size_t>(part));
  std::vector<MPI_Request> requests;
  for (int64_t at = 0; at < part; at += kMessage) {
    const int count = count_of(std::min(kMessage, part - at));
    requests.clear();
    for (int64_t i = 1; i < size; ++i) {
      const int64_t source = (rank + size - i) % size, target = (rank + i) % size;
      ok(MPI_Irecv(to + source * part + at, count, MPI_BYTE, static_cast<int>(source), kTag, handle(comm),
                   &requests.emplace_back()));
      ok(MPI_Isend(from + target * part + at, count, MPI_BYTE, static_cast<int>(target), kTag, handle(comm),
                   &requests.emplace_back()));
    }
    wait_all(requests);
  }
}

void launch(const Comm& comm, const Cpu&, const Broadcast& op) {
  if (comm.size() == 1) return;
  for (int64_t at = 0; at < op.x.bytes(); at += kMessage) {
    std::vector<MPI_Request> request(1);
    ok(MPI_Ibcast(static_cast<std::byte*>(op.x.data()) + at, count_of(std::min(kMessage, op.x.bytes() - at)), MPI_BYTE,
                  static_cast<int>(op.root), handle(comm), request.data()));
    wait_all(request);
  }
}

void launch(const Comm& comm, const Cpu&, const Send& op) {
  // A receiver that accumulates takes pieces, so both sides use the same sizes.
  auto* data = static_cast<std::byte*>(op.x.data());
  for (int64_t at = 0; at < op.x.bytes() || at == 0; at += kScratch)
    exchange(comm, Way::out,
             {.data = data + at, .bytes = std::min(kScratch, op.x.bytes() - at), .peer = op.peer, .channel = op.channel});
}

void launch(const Comm& comm, const Cpu& cpu, const Receive& op) {
  auto* data = static_cast<std::byte*>(op.x.data());
  std::byte* scratch = op.accumulate ? cpu.workspace->reserve(std::min(kScratch, op.x.bytes())) : nullptr;
  for (int64_t at = 0; at < op.x.bytes() || at == 0; at += kScratch) {
    const int64_t bytes = std::min(kScratch, op.x.bytes() - at);
    exchange(comm, Way::in, {.data = op.accumulate ? scratch : data + at, .bytes = bytes, .peer = op.peer, .channel = op.channel});
    if (!op.accumulate) continue;
    auto* to = reinterpret_cast<float*>(data + at);
    const auto* more = reinterpret_cast<const float*>(scratch);
#pragma omp simd
    for (int64_t i = 0; i < bytes / 4; ++i) to[i] += more[i];
  }
}

}  // namespace trireme
