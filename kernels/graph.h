// Graph: what a piece of the program hands to the lanes of a GPU, recorded once as a CUDA graph and handed over again as a whole:
// the host's time for each kernel, and the gaps that it leaves on the GPU, are gone.
//
// Whatever the piece hands over again must be the same: addresses, sizes, numbers. It begins when all lanes are through with what
// they were handed before, and they go on when it is done: nothing of it overlaps with its neighbours.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device.h"

namespace trireme {

class Graph {
 public:
  // Place::cuda. The device outlives it.
  explicit Graph(Device& device) : device_(device) {}

  // Calls `work`, records what it hands to the device's lanes instead of executing it, and hands over the whole. `work` must not
  // wait for a lane, and takes no memory: it has run before.
  void record(const std::function<void()>& work);
  // Hands over again what was recorded. False: it cannot be, for nothing was, or scratch memory has moved since.
  bool replay();

 private:
  struct Closer {
    void operator()(CudaGraph* graph) const { close_graph(graph); }
  };
  Device& device_;
  std::unique_ptr<CudaGraph, Closer> graph_;
};

}  // namespace trireme
