// Collectives as ops: run(comm, stream, AllReduce{.x = t}). All ranks of a Comm run the same ones
// in the same order.
//
// On the CPU, sums are f32 in one order: a balanced tree over the ranks (sum of the first half plus
// sum of the second half, recursively), rounded once to the tensor's dtype. So every rank gets the
// same bits. A group divided into nodes (Comm::locals) sums over each node's ranks, then over the
// nodes: the same tree if both numbers are powers of two. A group of one moves nothing, except for
// copies if the gathered or scattered tensor lies elsewhere.
#pragma once

#include <span>

#include "base/clock.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/run.h"
#include "parallel/comm.h"

namespace trireme {

// Bytes of x that a rank sends if each rank sums, or has, a share.
inline double shares_sent(const Comm& comm, const Tensor& x, bool bf16_on_wire) {
  const double share = static_cast<double>(x.bytes()) / static_cast<double>(comm.size());
  return share / (bf16_on_wire && x.dtype() == Dtype::f32 ? 2 : 1) * static_cast<double>(comm.size() - 1);
}

// x = sum over ranks of x, or the maximum. In a maximum, a NaN wins on the CPU and loses on GPUs.
struct AllReduce {
  static constexpr auto name = "all_reduce";
  enum class Kind { sum, max };
  Tensor x;  // add  any shape, f32 or bf16; the same on every rank
  Kind kind = Kind::sum;
  bool bf16_on_wire = false;  // send f32 addends as bf16 and the sum as f32
  void visit(auto& t) const { t.add(x); }
  void check(const Comm&) const { expect_float(x, "x"); }
  double sent(const Comm& comm) const {  // bytes that a rank sends
    return shares_sent(comm, x, bf16_on_wire) + shares_sent(comm, x, false);
  }
};

// For check(): `all` has as many equal parts as there are ranks, and `part` is the size of one.
inline void expect_parts(const Comm& comm, const Tensor& all, const Tensor& part) {
  expect(part, "part", {all.size() / comm.size()});
  require(part.dtype() == all.dtype() && all.dims() == 1 && all.size() % comm.size() == 0,
          text(all, " in parts of ", part, " over ", comm.size(), " ranks"));
}

// part = rank r's r-th part of the sum over ranks of `all`.
struct ReduceScatter {
  static constexpr auto name = "reduce_scatter";
  Tensor part;                // out  [n / size], flat; may be this rank's part of `all`; updated in place with `accumulate`
  Tensor all;                 // in   [n], flat
  bool accumulate = false;    // part += the sum
  bool bf16_on_wire = false;  // send f32 addends as bf16
  // Ranges of `part`, in its order, whose squares are summed with it where that saves a pass over memory: on the CPU, in f32.
  std::span<BlockSquares> squares{};
  void visit(auto& t) const { accumulate ? t.add(part) : t.out(part), t.in(all); }
  void check(const Comm& comm) const { expect_float(all, "all"), expect_parts(comm, all, part); }
  double sent(const Comm& comm) const { return shares_sent(comm, all, bf16_on_wire); }
};

// all = the ranks' parts, concatenated.
struct AllGather {
  static constexpr auto name = "all_gather";
  Tensor all;   // out  [n], flat, any dtype
  Tensor part;  // in   [n / size], flat; may be this rank's part of `all`
  void visit(auto& t) const { t.out(all), t.in(part); }
  void check(const Comm& comm) const { expect_parts(comm, all, part); }
  double sent(const Comm& comm) const { return shares_sent(comm, all, false); }
};

// Part r of `to` = part `rank` of rank r's `from`.
struct AllToAll {
  static constexpr auto name = "all_to_all";
  Tensor to;    // out  [n], flat, any dtype; not `from`
  Tensor from;  // in   [n], flat, in as many equal parts as there are ranks
  void visit(auto& t) const { t.out(to), t.in(from); }
  void check(const Comm& comm) const {
    expect_parts(comm, from, from.slice(0, from.size() / comm.size()));
    expect(to, "to", from.dtype(), {from.size()});
  }
  double sent(const Comm& comm) const { return shares_sent(comm, from, false); }
};

// sum = sum over ranks of x, on the root alone. On the CPU it has the bits of a ReduceScatter.
struct Reduce {
  static constexpr auto name = "reduce";
  Tensor sum;  // out  [n] on the root, flat; may be its x. Absent elsewhere
  Tensor x;    // in   [n], flat, f32 or bf16
  int64_t root = 0;
  void visit(auto& t) const { t.out(sum), t.in(x); }
  void check(const Comm& comm) const {
    require(0 <= root && root < comm.size() && (comm.rank() == root) == static_cast<bool>(sum),
            text("root ", root, " of ", comm.size()));
    expect_float(x, "x"), expect(x, "x", {x.size()});
    if (sum) expect(sum, "sum", x.dtype(), {x.size()});
  }
  double sent(const Comm& comm) const { return comm.rank() == root ? 0 : static_cast<double>(x.bytes()); }
};

// x = the root's x.
struct Broadcast {
  static constexpr auto name = "broadcast";
  Tensor x;  // add  any shape and dtype
  int64_t root = 0;
  void visit(auto& t) const { t.add(x); }
  void check(const Comm& comm) const { require(0 <= root && root < comm.size(), text("root ", root, " of ", comm.size())); }
  // Counted as in a gather, where each rank sends its share to each other one.
  double sent(const Comm& comm) const { return comm.rank() == root ? static_cast<double>((comm.size() - 1) * x.bytes()) : 0; }
};

// Sends x to `peer`; Receive gets x from it.
struct Send {
  static constexpr auto name = "send";
  Tensor x;  // in   any shape and dtype
  int64_t peer;
  Channel channel;
  void visit(auto& t) const { t.in(x); }
  void check(const Comm& comm) const { require(0 <= peer && peer < comm.size(), text("peer ", peer, " of ", comm.size())); }
  double sent(const Comm&) const { return static_cast<double>(x.bytes()); }
};
struct Receive {
  static constexpr auto name = "receive";
  Tensor x;  // out  any shape and dtype; with `accumulate` updated in place, f32
  int64_t peer;
  Channel channel;
  bool accumulate = false;  // x += the received values
  void visit(auto& t) const { accumulate ? t.add(x) : t.out(x); }
  void check(const Comm& comm) const { require(0 <= peer && peer < comm.size(), text("peer ", peer, " of ", comm.size())); }
  double sent(const Comm&) const { return 0; }
};

// Adds the ranks' addends of a round to a sum over many rounds in the order of one tree, however
// the addends are distributed: see TreeAdd. Rank r's addend has number first + r.
struct TreeAddAll {
  static constexpr auto name = "tree_add_all";
  Tensor tree;  // add  [levels, m] f32; 2^levels exceeds the number of addends
  Tensor all;   // in   [n] f32: n / m parts, a divisor of the group's size; rank r sums part r % (n / m)
  int64_t first;
  void visit(auto& t) const { t.add(tree), t.in(all); }
  void check(const Comm& comm) const {
    expect(tree, "tree", Dtype::f32, {tree.dim(0), tree.cols()});
    require(all.dtype() == Dtype::f32 && parts() * tree.cols() == all.size() && comm.size() % parts() == 0,
            text(all, " enters a tree of ", tree, " on ", comm.size(), " ranks"));
  }
  int64_t parts() const { return tree.cols() == 0 ? 1 : all.size() / tree.cols(); }
  double sent(const Comm& comm) const { return 4.0 * static_cast<double>(tree.cols()) * static_cast<double>(comm.size() - 1); }
};

void launch(const Comm&, const Cpu&, const TreeAddAll&);
void launch(const Comm&, const Cpu&, const AllReduce&);
void launch(const Comm&, const Cpu&, const ReduceScatter&);
void launch(const Comm&, const Cpu&, const AllGather&);
void launch(const Comm&, const Cpu&, const AllToAll&);
void launch(const Comm&, const Cpu&, const Reduce&);
void launch(const Comm&, const Cpu&, const Broadcast&);
void launch(const Comm&, const Cpu&, const Send&);
void launch(const Comm&, const Cpu&, const Receive&);

// Between GPUs: needs Comm::connect_gpus.
void launch(const Comm&, const Cuda&, const TreeAddAll&);
void launch(const Comm&, const Cuda&, const AllReduce&);
void launch(const Comm&, const Cuda&, const ReduceScatter&);
void launch(const Comm&, const Cuda&, const AllGather&);
void launch(const Comm&, const Cuda&, const AllToAll&);
void launch(const Comm&, const Cuda&, const Reduce&);
void launch(const Comm&, const Cuda&, const Broadcast&);
void launch(const Comm&, const Cuda&, const Send&);
void launch(const Comm&, const Cuda&, const Receive&);

// Runs a collective with a journal entry for its duration; on GPUs, for the time it takes to
// enqueue. All ranks of a collective enter the same bytes: a rank with others is doing something else.
template <class Op>
JournalSpan entered(const Comm& comm, const Op& op) {
  const auto bytes = static_cast<int64_t>(op.sent(comm));
  if constexpr (requires { op.peer; })
    return comm.span(Op::name, bytes, op.peer);
  else if constexpr (requires { op.root; })
    return comm.span(Op::name, op.x.bytes());
  else
    return comm.span(Op::name, bytes);
}

template <class Op>
void note_time(const Comm& comm, const Op& op, double seconds) {
  if constexpr (requires { op.peer; })
    comm.took(seconds, op.x.bytes(), op.peer, std::is_same_v<Op, Send>);
  else
    comm.took(seconds, static_cast<int64_t>(op.sent(comm)));
}

// The trace of a collective that has run since `begin`.
template <class Op>
TraceEvent trace_of(const Comm& comm, const Op& op, Clock::time_point begin) {
  TraceEvent event{.name = Op::name, .begin = begin, .bytes = op.sent(comm)};
  event.along(comm.axis());
  if constexpr (requires { op.peer; }) {
    event.kind = std::is_same_v<Op, Send> ? TraceEvent::Kind::send : TraceEvent::Kind::receive;
    event.peer = static_cast<int32_t>(comm.ranks().member(op.peer)), event.channel = static_cast<int32_t>(op.channel);
  }
  return event;
}

// The door for collectives. Counts under "all_reduce dp": calls, and the bytes that this rank
// sends. The Comm must outlive the work.
template <class Op>
void run(const Comm& comm, Stream& stream, const Op& op, std::source_location at = std::source_location::current()) {
  Door door(stream, Op::name, at);
  op.visit(door);
  op.check(comm);
  const auto counted = [&comm, op](Tally* tally, double seconds) {
    if (tally != nullptr && comm.size() > 1)
      count(tally, (std::string(Op::name) + " " + comm.axis()).c_str(), op, op.sent(comm), seconds);
  };
  if (stream.place() == Place::none) return counted(stream.tally(), 0);
  if (stream.place() == Place::cuda) {
    if (comm.size() == 1) return launch(comm, stream.cuda(), op);
    Tally* const tally = stream.tally();
    counted(tally, 0);
    const JournalSpan handed_over = entered(comm, op);
    if constexpr (!requires { op.peer; })
      if (comm.gpu_counter() != nullptr) count_on_gpu(*stream.cuda().lane, comm.gpu_counter());
    const CudaSpan span(stream, Op::name, tally == nullptr ? nullptr : &(*tally)[std::string(Op::name) + " " + comm.axis()]);
    return launch(comm, stream.cuda(), op);
  }
  if (stream.lane() != nullptr && comm.size() > 1) stream.lane()->carry(comm.axis().c_str());
  PartClock* const clock = comm.size() > 1 ? stream.clock() : nullptr;
  stream.execute(
      [&comm, op, counted, clock, cpu = stream.cpu(), tally = stream.tally(), lane = stream.lane(), trace = stream.trace()] {
        const PartSpan waits(clock, comm.axis().c_str(), true);
        if (lane != nullptr) lane->wait_as_tested();
        const JournalSpan span = entered(comm, op);
        const auto begin = Clock::now();
        launch(comm, cpu, op);
        const double seconds = seconds_since(begin);
        counted(tally, seconds), note_time(comm, op, seconds);
        if (trace != nullptr && comm.size() > 1) trace->add(trace_of(comm, op, begin));
      });
}

}  // namespace trireme
