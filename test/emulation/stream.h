// Streams and events of runtime.cpp, as capture.cpp needs them to record a stream's work.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::emulation {

using Work = std::function<void()>;

// Work given to streams since cudaStreamBeginCapture.
struct Capture {
  // One of: work to be made again for each launch; a record of event `event`; a wait for it.
  struct Node {
    cudaStream_t stream = nullptr;
    std::function<Work()> make{};
    int records = -1, waits = -1;
  };
  using Reach = std::map<cudaStream_t, size_t>;  // number of preceding nodes on each stream
  cudaStream_t origin = nullptr;
  std::vector<Node> nodes;             // in the order of the host
  std::map<cudaStream_t, Reach> come;  // after each stream's last node
  std::vector<Reach> recorded;         // at each event
  bool open = true;
  cudaError_t broken = cudaSuccess;
};

// True if the stream is being captured; `make` is then recorded.
bool captured(cudaStream_t stream, const std::function<Work()>& make);
cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream);
// Relation of a stream's wait for an event to a capture; nullopt: none.
struct Captured {
  bool yes;
  cudaError_t error;
};
Captured capture_wait(cudaStream_t stream, cudaEvent_t event);
// Errors for calls that are refused while this thread captures streams, and for calls on a captured
// stream.
cudaError_t refused_in_capture();
cudaError_t refused_of_captured(cudaStream_t stream);
void attempt(const Work& work);  // its exception becomes the library's error from then on
int64_t pending_works();         // given to all streams and not done

}  // namespace trireme::emulation

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<trireme::emulation::Work> queue;
  uint64_t pushed = 0, done = 0;
  bool closing = false;
  std::shared_ptr<trireme::emulation::Capture> capture;  // of a captured stream
  std::thread thread;
};
struct CUevent_st {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;  // records enqueued, and done
  std::chrono::steady_clock::time_point when{};
  std::shared_ptr<trireme::emulation::Capture> capture;  // the capture that its last record is part of
  int number = 0;                                        // its number there
};
