// StagingBuffer: memory of the host that a lane copies from, or to, while the host goes on. On a GPU it is pinned: a copy from any
// other memory would have the host wait.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"
#include "kernels/memory.h"

namespace trireme {

class StagingBuffer {
 public:
  StagingBuffer(Device& device, int64_t bytes);  // zeros, page-aligned

  std::byte* data() const { return data_; }
  // The lane was handed copies from or to this memory.
  void posted(const Stream& stream);
  // The host waits until they are through, however much the lane was handed since.
  void wait() const;

 private:
  struct Unpinner {
    void operator()(std::byte* memory) const { free_pinned(memory); }
  };
  struct MarkCloser {
    void operator()(CudaMark* mark) const { close_mark(mark); }
  };

  struct Unmapper {
    int64_t bytes;
    void operator()(std::byte* memory) const { unmap_memory(memory, bytes); }
  };

  std::unique_ptr<std::byte, Unmapper> plain_;  // where there is no GPU
  std::unique_ptr<std::byte, Unpinner> pinned_;
  std::unique_ptr<CudaMark, MarkCloser> mark_;  // behind the memory: it waits when it goes
  std::byte* data_;
};

}  // namespace trireme
