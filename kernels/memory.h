// Owners of memory. Buffer alone owns it. Arena hands out tensors of one Buffer in order; Frame
// releases temporaries at the end of a scope. On Place::none a Buffer has a size and no memory, so
// that the plan walks the very code that will run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace trireme {

// Kind of memory that ops of a place work on: the place's own; for Place::cuda pinned memory of the
// host; for Place::cpu memory that other processes of this user can open: see Buffer::file().
enum class Memory { own, pinned, shared };

// Host memory, zeroed, in pages as large as the system offers. Throws Error if there is not enough.
std::byte* map_memory(int64_t bytes, const char* what);
void unmap_memory(std::byte* memory, int64_t bytes);

class Buffer {
 public:
  Buffer(Device& device, int64_t bytes, const char* what, Memory memory = Memory::own);  // zero-filled, page-aligned
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Place place() const { return place_; }
  // The file of shared memory, which lies in memory alone; -1 for other kinds, or if the system refuses to share.
  int file() const { return file_; }

 private:
  Ledger& ledger_;
  Place place_;
  Memory memory_;
  int file_ = -1;
  GpuAllocator on_gpu_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Arena {
 public:
  static constexpr int64_t kAlign = 256;
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // On Place::none, pass kUnlimited to measure the need: peak().
  Arena(Device& device, int64_t bytes, const char* name, Memory memory = Memory::own)
      : name_(name), buffer_(device, bytes, name, memory) {}

  // Takes the next tensor, at a multiple of kAlign. Throws Error if the arena is full.
  Tensor take(Dtype dtype, std::initializer_list<int64_t> shape);
  // All bytes taken so far, as one flat tensor; gaps between tensors stay zero unless written.
  Tensor flat(Dtype dtype) const;

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  int64_t capacity() const { return buffer_.bytes(); }
  const Buffer& buffer() const { return buffer_; }
  const char* name() const { return name_; }

 private:
  friend class Frame;
  const char* name_;
  Buffer buffer_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

// Releases at the end of its scope what was taken from `arena` during it.
class Frame {
 public:
  explicit Frame(Arena& arena) : arena_(arena), mark_(arena.used_) {}
  ~Frame() { arena_.used_ = mark_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Arena& arena_;
  int64_t mark_;
};

struct ArenaSizes {
  int64_t weights = Arena::kUnlimited, gradients = Arena::kUnlimited, optimizer = Arena::kUnlimited;
  int64_t activations = Arena::kUnlimited, temporaries = Arena::kUnlimited;
  int64_t total() const { return weights + gradients + optimizer + activations + temporaries; }
};

// The five arenas of a run, allocated once with the sizes of the plan. The optimizer's arena holds
// what lasts from step to step: masters, moments, and what copies of the state have of their own.
struct Arenas {
  Arena weights, gradients, optimizer, activations, temporaries;
  Arenas(Device& device, const ArenaSizes& sizes, Memory of_optimizer = Memory::own, Memory of_gradients = Memory::own)
      : weights(device, sizes.weights, "weights"),
        gradients(device, sizes.gradients, "gradients", of_gradients),
        optimizer(device, sizes.optimizer, "optimizer", of_optimizer),
        activations(device, sizes.activations, "activations"),
        temporaries(device, sizes.temporaries, "temporaries") {}
  ArenaSizes peaks() const { return {weights.peak(), gradients.peak(), optimizer.peak(), activations.peak(), temporaries.peak()}; }
};

}  // namespace trireme
