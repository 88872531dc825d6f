#include "kernels/staging_buffer.h"

namespace trireme {

StagingBuffer::StagingBuffer(Device& device, int64_t bytes) {
  if (device.place() == Place::cuda) {
    pinned_.reset(allocate_pinned(bytes));
    require(pinned_ != nullptr || bytes == 0,
            text("out of memory: ", bytes, " bytes of pinned host memory for copies from or to the GPU", kLessPinned));
    mark_.reset(open_mark());
  } else if (bytes > 0) {
    plain_ = std::unique_ptr<std::byte, Unmapper>(map_memory(bytes, "a copy in the host's memory"), Unmapper{bytes});
  }
  data_ = pinned_ ? pinned_.get() : plain_.get();
}

void StagingBuffer::posted(const Stream& stream) {
  if (mark_) set_mark(*mark_, *stream.cuda().lane);
}

void StagingBuffer::wait() const {
  if (mark_) wait_for_mark(*mark_);
}

}  // namespace trireme
