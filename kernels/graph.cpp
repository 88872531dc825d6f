#include "kernels/graph.h"

namespace trireme {

void Graph::record(const std::function<void()>& work) {
  graph_.reset();
  const std::vector<CudaLane*> lanes = device_.cuda_lanes();
  begin_capture(lanes);
  try {
    work();
  } catch (...) {
    abandon_capture(lanes);
    throw;
  }
  graph_.reset(end_capture(lanes));
  launch_graph(*graph_, lanes);
}

bool Graph::replay() {
  const std::vector<CudaLane*> lanes = device_.cuda_lanes();
  if (graph_ == nullptr || !still_fits(*graph_, lanes)) return false;
  launch_graph(*graph_, lanes);
  return true;
}

}  // namespace trireme
