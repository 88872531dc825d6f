// Stream: an in-order lane of one device, handed to every function that launches work. Copied freely; owns nothing.
// On Place::cpu the compute lane runs each op inline. On Place::none nothing is computed: ops are counted into the Tally.
#pragma once

#include <map>
#include <string>

#include "kernels/tensor.h"

namespace trireme {

// What a lane has executed, by op name. Seconds are measured only where a Tally is asked for on a real place.
struct OpCount {
  int64_t calls = 0;
  double flops = 0;  // multiplications and additions of matrix products and attention; 0 for elementwise ops
  double bytes = 0;  // inputs read once, outputs written once, updated tensors both
  double seconds = 0;
};
using Tally = std::map<std::string, OpCount>;

// Scratch memory of the CPU kernels of one lane: contents last until the next reserve(). Defined in device.h.
class Workspace;

// What a CPU kernel needs to know of its machine. OpenMP already knows the number of threads.
struct Cpu {
  Workspace* workspace = nullptr;
  bool bf16_products = false;  // the CPU multiplies bf16 matrices itself; else products convert to f32 first
};

class Stream {
 public:
  explicit Stream(Tally& tally) : place_(Place::none), tally_(&tally) {}
  Stream(Cpu cpu, Tally* tally) : place_(Place::cpu), cpu_(cpu), tally_(tally) {}

  Place place() const { return place_; }
  const Cpu& cpu() const { return cpu_; }
  Tally* tally() const { return tally_; }

 private:
  Place place_;
  Cpu cpu_;
  Tally* tally_;
};

}  // namespace trireme
