// Stream: an in-order lane of one device, handed to every function that launches work. Copied freely; owns nothing.
// On Place::cpu the compute lane runs each op inline, the communication lane on a thread of its own. On Place::cuda each is a CUDA
// stream. On Place::none nothing is computed: ops are counted into the Tally.
//
// Streams are ordered among each other only where someone says so: comm.wait(compute.record()).
#pragma once

#include <map>
#include <string>

#include "kernels/cpu_queue.h"
#include "kernels/cuda_machine.h"
#include "kernels/op_shape.h"
#include "kernels/race_checker.h"
#include "kernels/tensor.h"

namespace trireme {

// What a lane has executed, by op name. Seconds are measured only where a Tally is asked for on a real place.
struct OpCount {
  int64_t calls = 0;
  double flops = 0;  // multiplications and additions of matrix products and attention; 0 for elementwise ops
  double bytes = 0;  // inputs read once, outputs written once, updated tensors both
  double seconds = 0;
  std::map<OpShape, int64_t> shapes{};  // on Place::none: how often each, of ops that have one
};
using Tally = std::map<std::string, OpCount>;

// Scratch memory of the CPU kernels of one lane: contents last until the next reserve(). Defined in device.h.
class Workspace;

// What a CPU kernel needs to know of its machine. OpenMP already knows the number of threads.
struct Cpu {
  Workspace* workspace = nullptr;
  bool bf16_products = false;  // the CPU multiplies bf16 matrices itself; else products convert to f32 first
};

// What the launch of a CUDA kernel needs to know.
struct Cuda {
  CudaLane* lane = nullptr;
  const AttentionChoices* attention = nullptr;  // of the lane's device
};

// A moment of a stream: all that it was handed before.
struct Event {
  CpuQueue* lane = nullptr;  // both absent: the moment has passed
  CudaLane* cuda = nullptr;
  uint64_t ticket = 0;  // of either
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
  void measure(Tally* tally) { tally_ = tally; }  // what it executes from here on
  CpuQueue* lane() const { return lane_; }

  // Of tests: what this stream is handed from here on is checked, as work of this lane of the checker; nullptr: no longer.
  void check_order(OrderChecker* order, size_t lane) { order_ = order, order_lane_ = lane; }
  OrderChecker* order() const { return order_; }
  size_t order_lane() const { return order_lane_; }

  Event record() const {
    return {.lane = lane_,
            .cuda = cuda_.lane,
            .ticket = lane_ != nullptr        ? lane_->pushed()
                      : cuda_.lane != nullptr ? record_moment(*cuda_.lane)
                                              : 0,
            .moment = order_ != nullptr ? order_->record(order_lane_) : OrderChecker::Moment{}};
  }
  // What is handed to this stream from here on begins after the event. A stream without a lane of its own waits here.
  void wait(const Event& event) const {
    if (order_ != nullptr) order_->wait(order_lane_, event.moment);
    if (event.cuda != nullptr && event.cuda != cuda_.lane) wait_for_moment(*cuda_.lane, *event.cuda, event.ticket);
    if (event.lane == nullptr || event.lane == lane_) return;
    execute([event] { event.lane->wait(event.ticket); });
  }
  // The host waits until all that this stream was handed is done.
  void finish() const {
    if (lane_ != nullptr) lane_->wait(lane_->pushed());
    if (cuda_.lane != nullptr) finish_lane(*cuda_.lane);
  }
  // Of the CPU: runs `work` in this stream's order: here, or on the lane's thread.
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
  size_t order_lane_ = 0;
};

}  // namespace trireme
