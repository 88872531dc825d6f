// Graph: a CUDA graph of the work that a piece of the program enqueues to the lanes of a GPU. It is
// recorded once and replayed as a whole, which saves the host's time for each kernel, and the gaps
// on the GPU.
//
// A replay repeats the same addresses, sizes and numbers. It begins once all lanes have finished
// earlier work, and they continue once it is done: it overlaps with nothing.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device.h"

namespace trireme {

class Graph {
 public:
  // Needs Place::cuda. The device must outlive it.
  explicit Graph(Device& device) : device_(device) {}

  // Calls `work`, records what it enqueues to the device's lanes instead of executing it, and
  // launches the whole. `work` must not wait for a lane or allocate memory: run it once before.
  void record(const std::function<void()>& work);
  // Launches the recorded work again. Returns false if nothing was recorded, or if scratch memory
  // has moved since.
  bool replay();

 private:
  struct Closer {
    void operator()(CudaGraph* graph) const { close_graph(graph); }
  };
  Device& device_;
  std::unique_ptr<CudaGraph, Closer> graph_;
};

}  // namespace trireme
