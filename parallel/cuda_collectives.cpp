// Collectives on Place::cuda. Those that NCCL lacks are an exchange of pieces and a sum by a kernel
// of ours: f32 sums of addends sent as bf16, and sums in the order of the tree.
#include <algorithm>
#include <vector>

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "parallel/gpu_group.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = 64 << 20;  // bytes of scratch memory that an exchange may take, approximately

Tensor flat(const Tensor& t) { return t.view({t.size()}); }

void move(const Cuda& cuda, const Tensor& to, const Tensor& from) {
  if (to.data() != from.data()) copy_bytes(*cuda.lane, to.data(), from.data(), from.bytes());
}

// The lane's scratch memory, divided into consecutive tensors.
class Pieces {
 public:
  Pieces(const Cuda& cuda, int64_t bytes) : at_(scratch(*cuda.lane, bytes)), end_(at_ + bytes) {}
  Tensor take(Dtype dtype, int64_t n) {
    const Tensor t(at_, dtype, Place::cuda, {n});
    at_ += bytes(dtype, n);
    require(at_ <= end_, text("more scratch memory than asked for"));
    return t;
  }
  static int64_t bytes(Dtype dtype, int64_t n) { return (n * bytes_of(dtype) + 255) / 256 * 256; }

 private:
  std::byte *at_, *end_;
};

// The same piece of each rank's part of `all`: elements [at, at + length) of each.
struct Round {
  int64_t at, length;
};
std::vector<Round> rounds(int64_t part, int64_t step) {
  std::vector<Round> list;
  for (int64_t at = 0; at < part; at += step) list.push_back({at, std::min(step, part - at)});
  return list;
}
int64_t step_of(const Comm& comm, int64_t part, int64_t element) {
  return std::min(part, std::max<int64_t>(kPiece / comm.size() / element / 64 * 64, 1024));
}

// Dtype in which addends of `dtype` are sent.
Dtype wire_of(Dtype dtype, bool bf16_on_wire) { return bf16_on_wire ? Dtype::bf16 : dtype; }

// Sums this rank's part in the order of the tree.
void sum_own_part(const Comm& comm, const Cuda& cuda, const ReduceScatter& op) {
  const int64_t size = comm.size(), rank = comm.rank(), n = op.part.size();
  const Dtype wire = wire_of(op.all.dtype(), op.bf16_on_wire);
  const bool cast = wire != op.all.dtype();
  const int64_t step = step_of(comm, n, (cast ? 2 : 1) * bytes_of(wire));
  for (const auto& [at, length] : rounds(n, step)) {
    Pieces pieces(cuda, (cast ? 2 : 1) * Pieces::bytes(wire, size * length));
    const Tensor addends = pieces.take(wire, size * length);
    Tensor narrow;
    if (cast) {
      narrow = pieces.take(wire, size * length);
      launch(cuda, CastColumns{.y = narrow.view({size, length}), .x = flat(op.all).view({size, n}), .first = at});
    }
    std::vector<Tensor> to, from;
    for (int64_t r = 0; r < size; ++r) {
      to.push_back(addends.slice(r * length, (r + 1) * length));
      from.push_back(cast ? narrow.slice(r * length, (r + 1) * length) : flat(op.all).slice(r * n + at, r * n + at + length));
    }
    move(cuda, to[static_cast<size_t>(rank)], from[static_cast<size_t>(rank)]);
    comm.gpus().exchange(*cuda.lane, to, from);
    launch(cuda, SumParts{.y = flat(op.part).slice(at, at + length), .parts = addends, .accumulate = op.accumulate});
  }
}

// Sums all of a few elements on every rank.
void sum_few(const Comm& comm, const Cuda& cuda, Tensor x) {
  if (x.size() == 0) return;
  Pieces pieces(cuda, Pieces::bytes(x.dtype(), comm.size() * x.size()));
  const Tensor all = pieces.take(x.dtype(), comm.size() * x.size());
  comm.gpus().all_gather(*cuda.lane, all, x);
  launch(cuda, SumParts{.y = x, .parts = all});
}

}  // namespace

// Sums of a few numbers, such as a gradient norm's, have the order of the ranks: groups of other nodes, for which NCCL
// chooses another order, get the same bits.
void launch(const Comm& comm, const Cuda& cuda, const AllReduce& op) {
  constexpr int64_t kFew = 16;
  if (comm.size() == 1 || op.x.size() == 0) return;
  const bool max = op.kind == AllReduce::Kind::max;
  if (!max && op.x.size() <= kFew && comm.size() > 2) return sum_few(comm, cuda, flat(op.x));
  if (max || (wire_of(op.x.dtype(), op.bf16_on_wire) == op.x.dtype() && !comm.ordered()))
    return comm.gpus().all_reduce(*cuda.lane, op.x, max ? GpuGroup::Sum::max : GpuGroup::Sum::add);
  const int64_t n = op.x.size(), share = n / comm.size(), even = share * comm.size();
  const Tensor x = flat(op.x), part = x.slice(comm.rank() * share, (comm.rank() + 1) * share);
  if (share > 0) {
    sum_own_part(comm, cuda, {.part = part, .all = x.slice(0, even), .bf16_on_wire = op.bf16_on_wire});
    comm.gpus().all_gather(*cuda.lane, x.slice(0, even), part);
  }
  sum_few(comm, cuda, x.slice(even, n));
}

void launch(const Comm& comm, const Cuda& cuda, const ReduceScatter& op) {
  if (comm.size() == 1) {
    require(!op.accumulate, text("a group of one has nothing to add"));
    return move(cuda, op.part, op.all);
  }
  if (wire_of(op.all.dtype(), op.bf16_on_wire) != op.all.dtype() || comm.ordered()) return sum_own_part(comm, cuda, op);
  if (!op.accumulate) return comm.gpus().reduce_scatter(*cuda.lane, op.part, op.all);
  Pieces pieces(cuda, Pieces::bytes(op.part.dtype(), op.part.size()));
  const Tensor sum = pieces.take(op.part.dtype(), op.part.size());
  comm.gpus().reduce_scatter(*cuda.lane, sum, op.all);
  launch(cuda, Add{.y = op.part, .a = op.part, .b = sum});
}

void launch(const Comm& comm, const Cuda& cuda, const AllGather& op) {
  if (comm.size() == 1) return move(cuda, op.all, op.part);
  comm.gpus().all_gather(*cuda.lane, op.all, op.part);
}

void launch(const Comm& comm, const Cuda& cuda, const AllToAll& op) {
  const int64_t part = op.from.size() / comm.size(), rank = comm.rank();
  std::vector<Tensor> to, from;
  for (int64_t r = 0; r < comm.size(); ++r) {
    to.push_back(op.to.slice(r * part, (r + 1) * part));
    from.push_back(op.from.slice(r * part, (r + 1) * part));
  }
  move(cuda, to[static_cast<size_t>(rank)], from[static_cast<size_t>(rank)]);
  if (comm.size() > 1) comm.gpus().exchange(*cuda.lane, to, from);
}

// In order, every rank gathers the addends: exact sums of a model are reduce-scatters.
void launch(const Comm& comm, const Cuda& cuda, const Reduce& op) {
  if (comm.size() == 1) return move(cuda, op.sum, op.x);
  if (!comm.ordered()) return comm.gpus().reduce(*cuda.lane, op.sum, op.x, op.root);
  for (const auto& [at, length] : rounds(op.x.size(), step_of(comm, op.x.size(), bytes_of(op.x.dtype())))) {
    Pieces pieces(cuda, Pieces::bytes(op.x.dtype(), comm.size() * length));
    const Tensor addends = pieces.take(op.x.dtype(), comm.size() * length);
    comm.gpus().all_gather(*cuda.lane, addends, op.x.slice(at, at + length));
    if (op.sum) launch(cuda, SumParts{.y = op.sum.slice(at, at + length), .parts = addends});
  }
}

void launch(const Comm& comm, const Cuda& cuda, const Broadcast& op) {
  if (comm.size() > 1) comm.gpus().broadcast(*cuda.lane, op.x, op.root);
}

// A receiver that accumulates takes pieces, so the sender uses the same sizes.
void launch(const Comm& comm, const Cuda& cuda, const Send& op) {
  for (const auto& [at, length] : rounds(op.x.size(), kPiece / 4))
    comm.gpus().send(*cuda.lane, flat(op.x).slice(at, at + length), op.peer, op.channel);
}

void launch(const Comm& comm, const Cuda& cuda, const Receive& op) {
  for (const auto& [at, length] : rounds(op.x.size(), kPiece / 4)) {
    const Tensor x = flat(op.x).slice(at, at + length);
    if (!op.accumulate) {
      comm.gpus().receive(*cuda.lane, x, op.peer, op.channel);
      continue;
    }
    const Tensor more = Pieces(cuda, Pieces::bytes(x.dtype(), length)).take(x.dtype(), length);
    comm.gpus().receive(*cuda.lane, more, op.peer, op.channel);
    launch(cuda, Add{.y = x, .a = x, .b = more});
  }
}

// Receives every rank's addends of a piece and adds them in the order of the ranks.
void launch(const Comm& comm, const Cuda& cuda, const TreeAddAll& op) {
  const int64_t size = comm.size(), rank = comm.rank(), m = op.tree.cols();
  const Tensor all = flat(op.all);
  const auto enter = [&](int64_t number, Tensor addend, int64_t first) {
    launch(cuda, TreeAdd{.tree = op.tree, .addend = addend, .index = number, .first = first});
  };
  if (size == 1) return enter(op.first, all, 0);
  const int64_t parts = op.parts();
  for (const auto& [at, length] : rounds(m, step_of(comm, m, 4))) {
    Pieces pieces(cuda, size * Pieces::bytes(Dtype::f32, length));
    std::vector<Tensor> to, from;
    for (int64_t r = 0; r < size; ++r) {
      const int64_t begin = r % parts * m + at;
      from.push_back(all.slice(begin, begin + length));
      to.push_back(r == rank ? from.back() : pieces.take(Dtype::f32, length));
    }
    comm.gpus().exchange(*cuda.lane, to, from);
    for (int64_t r = 0; r < size; ++r) enter(op.first + r, to[static_cast<size_t>(r)], at);
  }
}

}  // namespace trireme
