// Collectives on Place::cpu that sum, over MPI. The sums are our own, to fix their order: see
// collectives.h. Scratch memory is a lane's workspace.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "parallel/mpi_comm.h"
#include "parallel/mpi_messages.h"
#include "parallel/shared_memory.h"

namespace trireme {
namespace {

float read(const float& x) { return x; }
float read(const Bf16& x) { return static_cast<float>(x); }

// An addend as it is sent.
template <class Wire, class T>
float sent(const T& x) {
  return read(static_cast<Wire>(x));
}

// The largest of from[begin][i] to from[end - 1][i]; a NaN wins.
template <class Wire, class T>
float largest(const T* const* from, int64_t begin, int64_t end, int64_t i) {
  float most = sent<Wire>(from[begin][i]);
  for (int64_t rank = begin + 1; rank < end; ++rank) {
    const float other = sent<Wire>(from[rank][i]);
    most = most > other || most != most ? most : other;
  }
  return most;
}

// Elements that are summed over the ranks at once.
constexpr int64_t kBlock = 1024;

// sum[i] = from[begin][at + i] + ... in the order of the tree, for n <= kBlock elements.
template <class Wire, class T>
void sum_block(const T* const* from, int64_t begin, int64_t end, int64_t at, int64_t n, float* sum) {
  const T *const a = from[begin] + at, *const b = from[end - 1] + at;
  if (end - begin <= 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) sum[i] = end - begin == 1 ? sent<Wire>(a[i]) : sent<Wire>(a[i]) + sent<Wire>(b[i]);
    return;
  }
  std::array<float, kBlock> others;
  const int64_t middle = begin + (end - begin) / 2;
  sum_block<Wire>(from, begin, middle, at, n, sum);
  sum_block<Wire>(from, middle, end, at, n, others.data());
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += others[static_cast<size_t>(i)];
}

// Destination of addends: their sum, with `accumulate` added to the present value, or their
// maximum.
template <class T>
struct Combined {
  T* to;
  AllReduce::Kind kind = AllReduce::Kind::sum;
  bool accumulate = false;
  std::span<BlockSquares> squares{};  // ranges of the sum, summed in one pass where near ranks share memory
  Combined from_element(int64_t i) const { return {.to = to + i, .kind = kind, .accumulate = accumulate}; }
};

// into.to[i] = from[0][i] + ... in the order of the tree; into.to may be one of the addends, each of which counts as it is sent.
template <class Wire, class From, class To>
void combine(const std::vector<const From*>& from, const Combined<To>& into, int64_t n) {
  To* const to = into.to;
  const auto size = static_cast<int64_t>(from.size());
  if (into.kind == AllReduce::Kind::max) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(largest<Wire>(from.data(), 0, size, i));
    return;
  }
  for (int64_t at = 0; at < n; at += kBlock) {
    std::array<float, kBlock> sum;
    const int64_t count = std::min(kBlock, n - at);
    sum_block<Wire>(from.data(), 0, size, at, count, sum.data());
    if (into.accumulate) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<To>(read(to[at + i]) + sum[static_cast<size_t>(i)]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<To>(sum[static_cast<size_t>(i)]);
    }
  }
}

// An exchange among `count` ranks of a group, of which this is number `mine`: each has an addend
// for each other. Data that needs no conversion is sent without a copy.
template <class Wire, class From>
class Addends {
  static constexpr bool kCopied = !std::is_same_v<From, Wire>;

 public:
  // `memory` has bytes(count, step) bytes.
  Addends(const Comm& comm, int64_t count, int64_t mine, std::byte* memory, int64_t step)
      : comm_(comm), count_(count), mine_(mine), in_(reinterpret_cast<Wire*>(memory)), out_(in_ + count * step), step_(step) {}
  static int64_t bytes(int64_t count, int64_t step) {
    return (kCopied ? 2 : 1) * count * step * static_cast<int64_t>(sizeof(Wire));
  }

  // piece(k): begin and length of what number k sums, in this rank's data; rank(k): its rank.
  template <class Piece, class Rank>
  void post(Piece piece, Rank rank, std::vector<MPI_Request>& requests) {
    from_.resize(static_cast<size_t>(count_));
    const int64_t length = piece(mine_).second;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t source = (mine_ + count_ - i) % count_, target = (mine_ + i) % count_;
      const auto [begin, many] = piece(target);
      const Wire* const addend = as_sent(begin, many, out_ + target * step_);
      if (i == 0) {
        from_[static_cast<size_t>(mine_)] = addend;
        continue;
      }
      Wire* const into = in_ + source * step_;
      from_[static_cast<size_t>(source)] = into;
      const auto size = static_cast<int64_t>(sizeof(Wire));
      ok(MPI_Irecv(into, count_of(length * size), MPI_BYTE, static_cast<int>(rank(source)), kTag, handle(comm_),
                   &requests.emplace_back()));
      ok(MPI_Isend(addend, count_of(many * size), MPI_BYTE, static_cast<int>(rank(target)), kTag, handle(comm_),
                   &requests.emplace_back()));
    }
  }
  const std::vector<const Wire*>& all() const { return from_; }  // once the requests are done

 private:
  static const Wire* as_sent(const From* from, int64_t n, Wire* copy) {
    if constexpr (!kCopied) {
      return from;
    } else {
      for (int64_t i = 0; i < n; ++i) copy[i] = static_cast<Wire>(from[i]);
      return copy;
    }
  }

  const Comm& comm_;
  int64_t count_, mine_;
  Wire *in_, *out_;
  int64_t step_;
  std::vector<const Wire*> from_;
};

// The ranks' shares of n elements at `all`, in pieces of up to `step` each: piece(r, at) is rank
// r's piece at offset `at`.
template <class T>
struct Shares {
  const T* all;
  int64_t n, size, step;
  int64_t begin(int64_t r) const { return share_begin(n, r, size); }
  int64_t longest() const { return begin(1); }
  std::pair<const T*, int64_t> piece(int64_t r, int64_t at) const {
    const int64_t first = begin(r) + at;
    return {all + first, std::clamp<int64_t>(begin(r + 1) - first, 0, step)};
  }
};

// The same elements of several ranks, from number `i` on.
template <class T>
std::vector<const T*> from_element(std::vector<const T*> all, int64_t i) {
  for (const T*& one : all) one += i;
  return all;
}

// Memory of all near ranks where this one has n elements at `here`; empty if they do not share it.
template <class T>
std::vector<const T*> addends_of(const Comm& comm, const T* here, int64_t n) {
  std::vector<const T*> all;
  for (const std::byte* one : shared_by_near(comm, here, n * static_cast<int64_t>(sizeof(T))))
    all.push_back(reinterpret_cast<const T*>(one));
  return all;
}

// Combines this rank's share over the ranks, piece by piece to save scratch memory.
template <class Wire, class T>
void reduce_flat(const Comm& comm, const Cpu& cpu, const Shares<T>& shares, const Combined<T>& into) {
  using Others = Addends<Wire, T>;
  std::byte* const memory = cpu.workspace->reserve(Others::bytes(comm.size(), shares.step));
  std::vector<MPI_Request> requests;
  for (int64_t at = 0; at < shares.longest(); at += shares.step) {
    Others others(comm, comm.size(), comm.rank(), memory, shares.step);
    requests.clear();
    others.post([&](int64_t r) { return shares.piece(r, at); }, [](int64_t r) { return r; }, requests);
    wait_all(requests);
    combine<Wire>(others.all(), into.from_element(at), shares.piece(comm.rank(), at).second);
  }
}

// The same for a group divided into nodes: a node's ranks first sum among themselves, then each
// exchanges with its counterparts on other nodes. `near`: where the former have their addends, or empty.
template <class Wire, class T>
void reduce_in_nodes(const Comm& comm, const Cpu& cpu, const Shares<T>& shares, const std::vector<const T*>& near,
                     const Combined<T>& into) {
  using Neighbours = Addends<Wire, T>;
  using Others = Addends<Wire, float>;
  const int64_t locals = comm.locals(), nodes = comm.size() / locals, step = shares.step;
  const int64_t node = comm.rank() / locals, local = comm.rank() % locals;
  const int64_t column = near.empty() ? Neighbours::bytes(locals, step) : 0;
  const int64_t sums = nodes * step * static_cast<int64_t>(sizeof(float));
  std::byte* const memory = cpu.workspace->reserve(nodes * column + sums + Others::bytes(nodes, step));
  auto* const sum = reinterpret_cast<float*>(memory + nodes * column);
  const auto like = [&](int64_t j) { return j * locals + local; };  // this rank's counterpart on node j
  std::vector<MPI_Request> requests;
  for (int64_t at = 0; at < shares.longest(); at += step) {
    const auto length = [&](int64_t j) { return shares.piece(like(j), at).second; };
    const auto sum_node = [&](int64_t j, const auto& from) {
      combine<Wire>(from, Combined<float>{.to = sum + j * step, .kind = into.kind}, length(j));
    };
    std::vector<Neighbours> columns;
    requests.clear();
    for (int64_t j = 0; j < nodes && near.empty(); ++j) {
      columns.emplace_back(comm, locals, local, memory + j * column, step);
      columns.back().post([&](int64_t k) { return shares.piece(j * locals + k, at); }, [&](int64_t k) { return node * locals + k; },
                          requests);
    }
    wait_all(requests);
    for (int64_t j = 0; j < nodes; ++j)
      near.empty() ? sum_node(j, columns[static_cast<size_t>(j)].all())
                   : sum_node(j, from_element(near, shares.begin(like(j)) + at));
    Others others(comm, nodes, node, memory + nodes * column + sums, step);
    requests.clear();
    others.post([&](int64_t j) { return std::pair<const float*, int64_t>(sum + j * step, length(j)); }, like, requests);
    wait_all(requests);
    combine<Wire>(others.all(), into.from_element(at), length(node));
  }
}

// The same in place of all near ranks, with the squares of ranges of the sum.
template <class Wire, class T>
void combine_squared(const std::vector<const T*>& from, const Combined<T>& into, int64_t n) {
  int64_t done = 0;
  const auto combine_to = [&](int64_t end) {
    combine<Wire>(from_element(from, done), into.from_element(done), end - done);
    done = end;
  };
  if constexpr (std::is_same_v<T, float>)
    for (BlockSquares& range : into.squares) {
      const int64_t begin = range.begin() - into.to;
      combine_to(begin);
      for (int64_t first = 0; first < range.size(); first += range.block()) {
        combine_to(begin + std::min(first + range.block(), range.size()));
        range.add(first);
      }
      range.complete();
    }
  combine_to(n);
}

// Combines this rank's share of the n elements at `all` over the ranks. True if near ranks may still read `all`, until it meets
// them.
template <class Wire, class T>
bool reduce_share(const Comm& comm, const Cpu& cpu, const T* all, int64_t n, const Combined<T>& into) {
  const int64_t size = comm.size(), most = std::max<int64_t>(kScratch / size / static_cast<int64_t>(sizeof(Wire)), 1024);
  const Shares<T> shares{.all = all, .n = n, .size = size, .step = std::min(most, share_begin(n, 1, size))};
  const std::vector<const T*> near = addends_of(comm, all, n);
  const int64_t begin = shares.begin(comm.rank()), end = shares.begin(comm.rank() + 1);
  if (!near.empty()) meet_near(comm);
  if (comm.locals() > 1)
    reduce_in_nodes<Wire>(comm, cpu, shares, near, into);
  else if (near.empty())
    reduce_flat<Wire>(comm, cpu, shares, into);
  else
    combine_squared<Wire>(from_element(near, begin), into, end - begin);
  return !near.empty();
}

// Calls work(value of the element type, value of the type that is sent).
template <class Work>
void with_wire(Dtype dtype, bool bf16_on_wire, Work work) {
  if (dtype == Dtype::bf16)
    work(Bf16{}, Bf16{});
  else if (bf16_on_wire)
    work(0.0f, Bf16{});
  else
    work(0.0f, 0.0f);
}

}  // namespace

void launch(const Comm& comm, const Cpu& cpu, const AllReduce& op) {
  if (comm.size() == 1 || op.x.size() == 0) return;
  with_wire(op.x.dtype(), op.bf16_on_wire, [&](auto element, auto wire) {
    using T = decltype(element);
    const int64_t n = op.x.size();
    T* x = op.x.as<T>();
    T* const own = x + share_begin(n, comm.rank(), comm.size());
    reduce_share<decltype(wire)>(comm, cpu, x, n, Combined<T>{.to = own, .kind = op.kind});
    gather_shares(comm, reinterpret_cast<std::byte*>(x), n, sizeof(T));  // meets the near ranks
  });
}

void launch(const Comm& comm, const Cpu& cpu, const ReduceScatter& op) {
  if (comm.size() == 1) {
    require(!op.accumulate, text("a group of one has nothing to add"));
    if (op.part.data() != op.all.data()) std::memcpy(op.part.data(), op.all.data(), static_cast<size_t>(op.all.bytes()));
    return;
  }
  with_wire(op.all.dtype(), op.bf16_on_wire, [&](auto element, auto wire) {
    using T = decltype(element);
    const Combined<T> part{.to = op.part.as<T>(), .accumulate = op.accumulate, .squares = op.squares};
    if (reduce_share<decltype(wire)>(comm, cpu, op.all.as<T>(), op.all.size(), part)) meet_near(comm);
  });
}

// The root receives all others' addends piece by piece.
void launch(const Comm& comm, const Cpu& cpu, const Reduce& op) {
  const int64_t size = comm.size(), n = op.x.size(), element = bytes_of(op.x.dtype());
  if (size == 1 && op.sum.data() != op.x.data()) std::memcpy(op.sum.data(), op.x.data(), static_cast<size_t>(op.x.bytes()));
  if (size == 1) return;
  const int64_t step = std::min(n, std::max<int64_t>(kScratch / size / element, 1024));
  const bool root = comm.rank() == op.root;
  std::byte* const scratch = root ? cpu.workspace->reserve(size * step * element) : nullptr;
  std::vector<MPI_Request> requests;
  for (int64_t at = 0; at < n; at += step) {
    const int64_t length = std::min(step, n - at);
    std::byte* const own = static_cast<std::byte*>(op.x.data()) + at * element;
    requests.clear();
    if (!root)
      ok(MPI_Isend(own, count_of(length * element), MPI_BYTE, static_cast<int>(op.root), kTag, handle(comm),
                   &requests.emplace_back()));
    for (int64_t r = 0; root && r < size; ++r)
      if (r != op.root)
        ok(MPI_Irecv(scratch + r * step * element, count_of(length * element), MPI_BYTE, static_cast<int>(r), kTag, handle(comm),
                     &requests.emplace_back()));
    wait_all(requests);
    if (!root) continue;
    with_wire(op.x.dtype(), false, [&](auto value, auto) {
      using T = decltype(value);
      std::vector<const T*> from;
      for (int64_t r = 0; r < size; ++r) from.push_back(reinterpret_cast<T*>(r == op.root ? own : scratch + r * step * element));
      combine<T>(from, Combined<T>{.to = op.sum.as<T>() + at}, length);
    });
  }
}

// Receives every rank's addends piece by piece and adds them in the order of the ranks.
void launch(const Comm& comm, const Cpu& cpu, const TreeAddAll& op) {
  const int64_t size = comm.size(), rank = comm.rank(), m = op.tree.cols();
  const auto enter = [&](int64_t number, Tensor addend, int64_t first) {
    launch(cpu, TreeAdd{.tree = op.tree, .addend = addend, .index = number, .first = first});
  };
  if (size == 1) return enter(op.first, op.all.view({m}), 0);
  const float* all = op.all.as<float>();
  const int64_t parts = op.parts();
  const int64_t step = std::min<int64_t>(std::max<int64_t>(kScratch / size / 4, 1024), m);
  auto* scratch = reinterpret_cast<float*>(cpu.workspace->reserve(size * step * 4));
  std::vector<MPI_Request> requests;
  for (int64_t at = 0; at < m; at += step) {
    const int64_t length = std::min(step, m - at), bytes = length * 4;
    const auto begin = [&](int64_t r) { return all + r % parts * m + at; };  // start of what rank r sums
    requests.clear();
    for (int64_t i = 1; i < size; ++i) {
      const int64_t source = (rank + size - i) % size, target = (rank + i) % size;
      ok(MPI_Irecv(scratch + source * step, count_of(bytes), MPI_BYTE, static_cast<int>(source), kTag, handle(comm),
                   &requests.emplace_back()));
      ok(MPI_Isend(begin(target), count_of(bytes), MPI_BYTE, static_cast<int>(target), kTag, handle(comm),
                   &requests.emplace_back()));
    }
    wait_all(requests);
    for (int64_t r = 0; r < size; ++r) {
      const Tensor theirs(scratch + r * step, Dtype::f32, Place::cpu, {length}), own = op.all.view({op.all.size()});
      const int64_t mine = rank % parts * m + at;
      enter(op.first + r, r == rank ? own.slice(mine, mine + length) : theirs, at);
    }
  }
}

}  // namespace trireme
