// CUDA graphs: records the work of captured streams. Each launch runs each stream's part on a
// thread of its own, ordered only by the events of the graph. Refuses what CUDA refuses for
// captured streams and events.
#include <utility>

#include "test/emulation/stream.h"

using trireme::emulation::Capture;
using trireme::emulation::Work;

struct CUgraph_st {
  std::shared_ptr<Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> capture;
};

namespace {

thread_local int captures = 0;  // begun by this thread and not ended

void come_after(Capture::Reach& mine, const Capture::Reach& other) {
  for (const auto& [stream, nodes] : other) mine[stream] = std::max(mine[stream], nodes);
}

void add(Capture& capture, const Capture::Node& node) {
  capture.nodes.push_back(node);
  ++capture.come[node.stream][node.stream];
}

// One launch, with the events recorded so far.
struct Launch {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> recorded;
};

void run_branch(Launch& launch, const std::vector<std::pair<Capture::Node, Work>>& nodes, cudaStream_t stream) {
  for (const auto& [node, work] : nodes) {
    if (node.stream != stream) continue;
    if (work) trireme::emulation::attempt(work);
    std::unique_lock lock(launch.mutex);
    if (node.records >= 0) {
      launch.recorded[static_cast<size_t>(node.records)] = true;
      launch.changed.notify_all();
    }
    if (node.waits >= 0) launch.changed.wait(lock, [&] { return bool(launch.recorded[static_cast<size_t>(node.waits)]); });
  }
}

}  // namespace

namespace trireme::emulation {

bool captured(cudaStream_t stream, const std::function<Work()>& make) {
  if (stream == nullptr || stream->capture == nullptr) return false;
  add(*stream->capture, {.stream = stream, .make = make});
  return true;
}

cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream) {
  Capture& capture = *stream->capture;
  event->capture = stream->capture;
  event->number = static_cast<int>(capture.recorded.size());
  add(capture, {.stream = stream, .records = event->number});
  capture.recorded.push_back(capture.come[stream]);
  return cudaSuccess;
}

Captured capture_wait(cudaStream_t stream, cudaEvent_t event) {
  const std::shared_ptr<Capture> of_event = event->capture;
  if (of_event == nullptr) {
    if (stream->capture == nullptr) return {false, cudaSuccess};
    return {true, stream->capture->broken = cudaErrorStreamCaptureIsolation};
  }
  if (!of_event->open) return {true, cudaErrorCapturedEvent};
  if (stream->capture == nullptr) stream->capture = of_event;
  if (stream->capture != of_event) return {true, cudaErrorStreamCaptureIsolation};
  come_after(of_event->come[stream], of_event->recorded[static_cast<size_t>(event->number)]);
  add(*of_event, {.stream = stream, .waits = event->number});
  return {true, cudaSuccess};
}

cudaError_t refused_in_capture() { return captures > 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess; }

cudaError_t refused_of_captured(cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) return cudaSuccess;
  return stream->capture->broken = cudaErrorStreamCaptureUnsupported;
}

}  // namespace trireme::emulation

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  ++captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr || stream->capture->origin != stream) return cudaErrorInvalidValue;
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->open = false;
  --captures;
  cudaError_t error = capture->broken;
  for (const auto& [each, reach] : capture->come) {
    each->capture = nullptr;
    const auto own = reach.find(each);
    if (own != reach.end() && capture->come[stream][each] < own->second && error == cudaSuccess)
      error = cudaErrorStreamCaptureUnjoined;
  }
  stream->capture = nullptr;
  if (error == cudaSuccess) *graph = new CUgraph_st{capture};
  return error;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new CUgraphExec_st{graph->capture}, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  std::vector<std::pair<Capture::Node, Work>> nodes;
  for (const Capture::Node& node : exec->capture->nodes) nodes.emplace_back(node, node.make ? node.make() : Work());
  return trireme::emulation::in_stream(stream, [capture = exec->capture, nodes = std::move(nodes)] {
    Launch launch;
    launch.recorded.resize(capture->recorded.size());
    std::vector<std::jthread> branches;
    for (const auto& [each, reach] : capture->come)
      if (each != capture->origin) branches.emplace_back([&, each = each] { run_branch(launch, nodes, each); });
    run_branch(launch, nodes, capture->origin);
  });
}
