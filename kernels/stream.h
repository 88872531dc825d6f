// Stream: an in-order lane of one device, passed to every function that launches work. Copied
// freely; owns nothing.
// On Place::cpu, the compute lane runs each op inline, the communication lane on a thread of its
// own. On Place::cuda each is a CUDA stream. On Place::none nothing is computed: ops are counted
// into the Tally.
//
// Streams are ordered only by explicit waits: comm.wait(compute.record()).
#pragma once

#include <map>
#include <string>

#include "kernels/cpu_queue.h"
#include "kernels/cuda_machine.h"
#include "kernels/op_shape.h"
#include "kernels/part_clock.h"
#include "kernels/race_checker.h"
#include "kernels/tensor.h"
#include "kernels/trace.h"

namespace trireme {

// Counts of a lane's work, by op name. On a real place, seconds are measured only if a Tally is
// requested.
struct OpCount {
  int64_t calls = 0;
  double flops = 0;  // multiplications and additions of matrix products and attention; 0 for elementwise ops
  double bytes = 0;  // inputs read once, outputs written once, updated tensors both
  double seconds = 0;
  std::map<OpShape, int64_t> shapes{};  // on Place::none: the count of each shape
};
using Tally = std::map<std::string, OpCount>;

// Scratch memory of the CPU kernels of one lane; contents last until the next reserve(). Defined in
// device.h.
class Workspace;

// Machine facts for CPU kernels. OpenMP already knows the number of threads.
struct Cpu {
  Workspace* workspace = nullptr;
  bool bf16_products = false;     // oneDNN multiplies bf16 matrices; else our own products do
  bool own_bf16 = false;          // by AVX512-BF16
  bool own_amx = false;           // by AMX, before that
  bool own_f32 = false;           // our own products multiply f32 matrices
  bool multiplies_pairs = false;  // attention multiplies pairs of bf16, by AVX512-BF16
};

// Context of a CUDA kernel launch.
struct Cuda {
  CudaLane* lane = nullptr;
  const AttentionChoices* attention = nullptr;  // of the lane's device
};

// A moment of a stream: all work enqueued before.
struct Event {
  CpuQueue* lane = nullptr;  // both absent: the moment has passed
  CudaLane* cuda = nullptr;
  uint64_t ticket = 0;         // of either
  const char* axis = nullptr;  // of the last collective before it
  OrderChecker::Moment moment{};
};

class Stream {
 public:
  explicit Stream(Tally& tally) : place_(Place::none), tally_(&tally) {}
  Stream(Cpu cpu, Tally* tally, CpuQueue* lane = nullptr) : place_(Place::cpu), cpu_(cpu), tally_(tally), lane_(lane) {}

  explicit Stream(Cuda cuda, Tally* tally) : place_(Place::cuda), cuda_(cuda), tally_(tally) {}

  Place place() const { return place_; }
  const Cpu& cpu() const { return cpu_; }
  const Cuda& cuda() const { return cuda_; }
  Tally* tally() const { return tally_; }
  void measure(Tally* tally) { tally_ = tally; }  // counts work from here on
  CpuQueue* lane() const { return lane_; }

  // The clock of the thread that computes, if this is its lane: waits for other lanes count as waits along the axes of their
  // collectives.
  void time_by(PartClock* clock) { clock_ = clock; }
  PartClock* clock() const { return clock_; }

  // Traces later work; nullptr: no more.
  void trace_into(TraceLane* trace) { trace_ = trace; }
  TraceLane* trace() const { return trace_; }

  // For tests: checks later work of this stream as work of this lane of the checker; nullptr:
  // stops.
  void check_order(OrderChecker* order, size_t lane) { order_ = order, order_lane_ = lane; }
  OrderChecker* order() const { return order_; }
  size_t order_lane() const { return order_lane_; }

  Event record() const {
    return {.lane = lane_,
            .cuda = cuda_.lane,
            .ticket = lane_ != nullptr        ? lane_->pushed()
                      : cuda_.lane != nullptr ? record_moment(*cuda_.lane)
                                              : 0,
            .axis = lane_ != nullptr ? lane_->carried() : nullptr,
            .moment = order_ != nullptr ? order_->record(order_lane_) : OrderChecker::Moment{}};
  }
  // Makes later work of this stream wait for the event. A stream without a lane of its own waits
  // here.
  void wait(const Event& event) const {
    if (order_ != nullptr) order_->wait(order_lane_, event.moment);
    if (event.cuda != nullptr && event.cuda != cuda_.lane) wait_for_moment(*cuda_.lane, *event.cuda, event.ticket);
    if (event.lane == nullptr || event.lane == lane_) return;
    if (lane_ != nullptr) return execute([event] { event.lane->wait(event.ticket); });
    const PartSpan waits(event.axis != nullptr ? clock_ : nullptr, event.axis, true);
    TraceEvent waited{.name = "wait", .kind = TraceEvent::Kind::wait};
    if (trace_ != nullptr) waited.begin = Clock::now(), waited.along(event.axis != nullptr ? event.axis : "");
    event.lane->wait(event.ticket);
    if (trace_ != nullptr) trace_->add(waited);
  }
  // Blocks the host until all enqueued work of this stream is done.
  void finish() const {
    if (lane_ != nullptr) lane_->wait(lane_->pushed());
    if (cuda_.lane != nullptr) finish_lane(*cuda_.lane);
  }
  // On the CPU: runs `work` in this stream's order, inline or on the lane's thread.
  template <class Work>
  void execute(const Work& work) const {
    if (lane_ != nullptr)
      lane_->push(work);
    else
      work();
  }

 private:
  Place place_;
  Cpu cpu_{};
  Cuda cuda_{};
  Tally* tally_;
  CpuQueue* lane_ = nullptr;
  OrderChecker* order_ = nullptr;
  PartClock* clock_ = nullptr;
  TraceLane* trace_ = nullptr;
  size_t order_lane_ = 0;
};

// A part of a step, timed and traced for the life of the object. `number`: which microbatch or step; -1: none.
class StreamPart {
 public:
  StreamPart(const Stream& stream, const char* name, int64_t number = -1)
      : timed_(stream.clock(), name), traced_(stream.trace(), name, number) {}

 private:
  PartSpan timed_;
  TraceSpan traced_;
};

}  // namespace trireme
