// Streams and events as runtime.cpp keeps them, for capture.cpp, which records what streams are handed.
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
  // One of: work to be made anew for each launch; event `event` is recorded; it is waited for.
  struct Node {
    cudaStream_t stream = nullptr;
    std::function<Work()> make{};
    int records = -1, waits = -1;
  };
  using Reach = std::map<cudaStream_t, size_t>;  // how many nodes of each stream come before
  cudaStream_t origin = nullptr;
  std::vector<Node> nodes;             // in the order of the host
  std::map<cudaStream_t, Reach> come;  // after each stream's last node
  std::vector<Reach> recorded;         // at each event
  bool open = true;
  cudaError_t broken = cudaSuccess;
};

// Whether the stream is being captured; then `make` is kept instead.
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
void attempt(const Work& work);  // what it throws is the library's error from then on

}  // namespace trireme::emulation

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<trireme::emulation::Work> queue;
  uint64_t pushed = 0, done = 0;
  bool closing = false;
  std::shared_ptr<trireme::emulation::Capture> capture;  // it is being captured
  std::thread thread;
};
struct CUevent_st {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;  // how many records were handed over, and are done
  std::chrono::steady_clock::time_point when{};
  std::shared_ptr<trireme::emulation::Capture> capture;  // its last record is part of it
  int number = 0;                                        // there
};
