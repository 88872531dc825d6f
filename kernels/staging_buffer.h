// StagingBuffer: host memory that a lane copies from, or to, while the host continues. For a GPU it
// is pinned, since a copy from any other memory would block the host.
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
  // Call it after enqueueing copies from or to this memory.
  void posted(const Stream& stream);
  // Blocks the host until these copies are done, regardless of later work.
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

  std::unique_ptr<std::byte, Unmapper> plain_;  // if there is no GPU
  std::unique_ptr<std::byte, Unpinner> pinned_;
  std::unique_ptr<CudaMark, MarkCloser> mark_;  // declared after the memory: its destructor waits first
  std::byte* data_;
};

}  // namespace trireme
