// The door: run(stream, Op{...}) is the only way to execute an operation.
//
// An op is a struct with a name, tensors (outputs first), options, visit() that lists its tensors,
// and check() for shapes and dtypes. It has flops() if it multiplies matrices, and shape() if
// several kernels of different speed implement it. Behind the door is one overload per back-end,
// found by argument-dependent lookup:
//   void launch(const Cpu&, const Op&);        void launch(const Cuda&, const Op&);
// Conventions of the house: a backward ADDS to weight gradients (listed under t.add) and OVERWRITES
// everything else. Weight gradients are f32. Outputs never alias inputs unless the op says so. A
// field without a default is required.
#pragma once

#include <source_location>

#include "base/clock.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace trireme {

// Walks an op's tensors: checks that all are on the lane's place and none is null, adds up the
// bytes that it moves, and reports to the OrderChecker, if there is one.
class Door {
 public:
  Door(const Stream& stream, const char* op, std::source_location at) : stream_(stream), op_(op), at_(at) {}

  template <class... Tensors>
  void in(const Tensors&... tensors) {
    (pass(tensors, 1, &OrderChecker::read), ...);
  }
  template <class... Tensors>
  void out(const Tensors&... tensors) {
    (pass(tensors, 1, &OrderChecker::write), ...);
  }
  template <class... Tensors>
  void add(const Tensors&... tensors) {
    (pass(tensors, 2, &OrderChecker::write), ...);
  }

  double bytes() const { return bytes_; }

 private:
  void pass(const Tensor& t, int times, void (OrderChecker::*use)(const OrderChecker::Access&)) {
    if (!t.present()) return;
    require(t.place() == stream_.place(),
            text(op_, ": a tensor of place ", name_of(t.place()), " on a lane of place ", name_of(stream_.place())), at_);
    require(t.data() != nullptr || t.place() == Place::none || t.size() == 0, text(op_, ": a tensor without memory"), at_);
    bytes_ += static_cast<double>(times * t.bytes());
    if (OrderChecker* order = stream_.order())
      (order->*use)({.lane = stream_.order_lane(), .op = op_, .at = at_, .data = t.data(), .bytes = t.bytes()});
  }

  const Stream& stream_;
  const char* op_;
  std::source_location at_;
  double bytes_ = 0;
};

template <class Op>
double flops_of(const Op& op) {
  if constexpr (requires { op.flops(); })
    return op.flops();
  else
    return 0;
}

// Adds to the stream's Tally what one call of `op` did, or would do on Place::none.
template <class Op>
void count(Tally* tally, const char* name, const Op& op, double bytes, double seconds) {
  if (tally == nullptr) return;
  OpCount& count = (*tally)[name];
  count.calls += 1;
  count.bytes += bytes;
  count.flops += flops_of(op);
  count.seconds += seconds;
}

template <class Op>
void count_shape(Tally& tally, const Op& op) {
  if constexpr (requires { op.shape(); })
    if (const std::optional<OpShape> shape = op.shape()) ++tally[Op::name].shapes[*shape];
}

// Marks work enqueued to a CUDA lane during its lifetime with the op's name for profilers, and
// times it if times are measured.
class CudaSpan {
 public:
  CudaSpan(const Stream& stream, const char* op, OpCount* count) : lane_(*stream.cuda().lane), count_(count) {
    begin_range(op);
    if (count_ != nullptr) begin_timer(lane_);
  }
  ~CudaSpan() {
    if (count_ != nullptr) end_timer(lane_, &count_->seconds);
    end_range();
  }
  CudaSpan(const CudaSpan&) = delete;
  CudaSpan& operator=(const CudaSpan&) = delete;

 private:
  CudaLane& lane_;
  OpCount* count_;
};

template <class Op>
void run(Stream& stream, const Op& op, std::source_location at = std::source_location::current()) {
  Door door(stream, Op::name, at);
  op.visit(door);
  op.check();
  double bytes = door.bytes();
  if constexpr (requires { op.bytes_untouched(); }) bytes -= op.bytes_untouched();
  if (stream.place() == Place::none) {
    count(stream.tally(), Op::name, op, bytes, 0);
    return count_shape(*stream.tally(), op);
  }
  if (stream.place() == Place::cuda) {
    Tally* const tally = stream.tally();
    count(tally, Op::name, op, bytes, 0);
    const CudaSpan span(stream, Op::name, tally == nullptr ? nullptr : &(*tally)[Op::name]);
    return launch(stream.cuda(), op);
  }
  stream.execute([op, bytes, cpu = stream.cpu(), tally = stream.tally(), trace = stream.trace()] {
    const auto begin = Clock::now();
    launch(cpu, op);
    count(tally, Op::name, op, bytes, seconds_since(begin));
    if (trace != nullptr) trace->add({.name = Op::name, .begin = begin, .bytes = bytes, .flops = flops_of(op)});
  });
}

}  // namespace trireme
