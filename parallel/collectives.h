// Collectives, as ops: run(comm, stream, AllReduce{.x = t}). All ranks of a Comm run the same ones in the same order.
//
// On the CPU, sums are taken in f32, in one order: a balanced tree over the ranks (the first half's sum plus the second half's, and
// so on down), rounded once to the tensor's dtype. So every rank gets the same bits. A group in nodes (Comm::locals) sums over each
// node's ranks, then over the nodes: the same tree where both numbers are powers of two. In a group of one, nothing moves; what is
// gathered or scattered to another place is copied.
#pragma once

#include "base/clock.h"
#include "kernels/run.h"
#include "parallel/comm.h"

namespace trireme {

// Bytes of x that a rank sends, of which each rank sums or has a share.
inline double shares_sent(const Comm& comm, const Tensor& x, bool bf16_on_wire) {
  const double share = static_cast<double>(x.bytes()) / static_cast<double>(comm.size());
  return share / (bf16_on_wire && x.dtype() == Dtype::f32 ? 2 : 1) * static_cast<double>(comm.size() - 1);
}

// x = sum over ranks of x, or the largest. Of the largest, a NaN wins on the CPU and loses on GPUs.
struct AllReduce {
  static constexpr auto name = "all_reduce";
  enum class Kind { sum, max };
  Tensor x;  // add  any shape, f32 or bf16; the same on every rank
  Kind kind = Kind::sum;
  bool bf16_on_wire = false;  // f32 addends travel as bf16; their sum as f32
  void visit(auto& t) const { t.add(x); }
  void check(const Comm&) const { expect_float(x, "x"); }
  double sent(const Comm& comm) const {  // bytes a rank sends
    return shares_sent(comm, x, bf16_on_wire) + shares_sent(comm, x, false);
  }
};

// For check(): `part` is one of as many equal parts of `all` as there are ranks.
inline void expect_parts(const Comm& comm, const Tensor& all, const Tensor& part) {
  expect(part, "part", {all.size() / comm.size()});
  require(part.dtype() == all.dtype() && all.dims() == 1 && all.size() % comm.size() == 0,
          text(all, " in parts of ", part, " over ", comm.size(), " ranks"));
}

// part = rank r's r-th part of the sum over ranks of `all`.
struct ReduceScatter {
  static constexpr auto name = "reduce_scatter";
  Tensor part;                // out  [n / size], flat; it may be this rank's part of `all`; with `accumulate` updated in place
  Tensor all;                 // in   [n], flat
  bool accumulate = false;    // part += the sum
  bool bf16_on_wire = false;  // f32 addends travel as bf16
  void visit(auto& t) const { accumulate ? t.add(part) : t.out(part), t.in(all); }
  void check(const Comm& comm) const { expect_float(all, "all"), expect_parts(comm, all, part); }
  double sent(const Comm& comm) const { return shares_sent(comm, all, bf16_on_wire); }
};

// all = the ranks' parts, one after the other.
struct AllGather {
  static constexpr auto name = "all_gather";
  Tensor all;   // out  [n], flat, any dtype
  Tensor part;  // in   [n / size], flat; it may be this rank's part of `all`
  void visit(auto& t) const { t.out(all), t.in(part); }
  void check(const Comm& comm) const { expect_parts(comm, all, part); }
  double sent(const Comm& comm) const { return shares_sent(comm, all, false); }
};

// x = the root's x.
struct Broadcast {
  static constexpr auto name = "broadcast";
  Tensor x;  // add  any shape and dtype
  int64_t root = 0;
  void visit(auto& t) const { t.add(x); }
  void check(const Comm& comm) const { require(0 <= root && root < comm.size(), text("root ", root, " of ", comm.size())); }
  double sent(const Comm& comm) const { return comm.size() > 1 ? static_cast<double>(x.bytes()) : 0; }
};

// x goes to `peer`; x comes from it.
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
  bool accumulate = false;  // x += what comes
  void visit(auto& t) const { accumulate ? t.add(x) : t.out(x); }
  void check(const Comm& comm) const { require(0 <= peer && peer < comm.size(), text("peer ", peer, " of ", comm.size())); }
  double sent(const Comm&) const { return 0; }
};

// A sum of many addends in the order of one tree, whoever has which of them: see TreeAdd. Enters the ranks' addends of a round:
// rank r's is number first + r.
struct TreeAddAll {
  static constexpr auto name = "tree_add_all";
  Tensor tree;  // add  [levels, m] f32; levels such that 2^levels exceeds all addends
  Tensor all;   // in   [n] f32: m = n / size, of which each rank sums its own part; or m = n
  int64_t first;
  void visit(auto& t) const { t.add(tree), t.in(all); }
  void check(const Comm& comm) const {
    expect(tree, "tree", Dtype::f32, {tree.dim(0), tree.cols()});
    require(all.dtype() == Dtype::f32 && (tree.cols() == all.size() || tree.cols() * comm.size() == all.size()),
            text(all, " enters a tree of ", tree));
  }
  double sent(const Comm& comm) const { return 4.0 * static_cast<double>(tree.cols()) * static_cast<double>(comm.size() - 1); }
};

void launch(const Comm&, const Cpu&, const TreeAddAll&);
void launch(const Comm&, const Cpu&, const AllReduce&);
void launch(const Comm&, const Cpu&, const ReduceScatter&);
void launch(const Comm&, const Cpu&, const AllGather&);
void launch(const Comm&, const Cpu&, const Broadcast&);
void launch(const Comm&, const Cpu&, const Send&);
void launch(const Comm&, const Cpu&, const Receive&);

// Between GPUs: see Comm::connect_gpus.
void launch(const Comm&, const Cuda&, const TreeAddAll&);
void launch(const Comm&, const Cuda&, const AllReduce&);
void launch(const Comm&, const Cuda&, const ReduceScatter&);
void launch(const Comm&, const Cuda&, const AllGather&);
void launch(const Comm&, const Cuda&, const Broadcast&);
void launch(const Comm&, const Cuda&, const Send&);
void launch(const Comm&, const Cuda&, const Receive&);

// Written down as long as it lasts; of GPUs, as long as it is handed over.
template <class Op>
JournalSpan entered(const Comm& comm, const Op& op) {
  const auto bytes = static_cast<int64_t>(op.sent(comm));
  if constexpr (requires { op.peer; })
    return comm.span(Op::name, bytes, op.peer);
  else
    return comm.span(Op::name, bytes);
}

// The door of collectives. Counted under "all_reduce dp": calls, and as bytes what this rank sends. The Comm outlives the work.
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
    const CudaSpan span(stream, Op::name, tally == nullptr ? nullptr : &(*tally)[std::string(Op::name) + " " + comm.axis()]);
    return launch(comm, stream.cuda(), op);
  }
  stream.execute([&comm, op, counted, cpu = stream.cpu(), tally = stream.tally(), lane = stream.lane()] {
    if (lane != nullptr) lane->wait_as_tested();
    const JournalSpan span = entered(comm, op);
    const auto begin = Clock::now();
    launch(comm, cpu, op);
    counted(tally, seconds_since(begin));
  });
}

}  // namespace trireme
