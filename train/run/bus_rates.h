// Bandwidth of collectives by size, as nccl-tests counts it (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/key.h"
#include "kernels/memory.h"
#include "parallel/mesh.h"

namespace trireme {

enum class BusOp { all_reduce, all_gather, reduce_scatter, send_receive };
inline constexpr std::array kBusOps{BusOp::all_reduce, BusOp::all_gather, BusOp::reduce_scatter, BusOp::send_receive};

template <>
struct Names<BusOp> {
  static constexpr std::array<std::string_view, 4> words{"all_reduce", "all_gather", "reduce_scatter", "send_receive"};
};

struct BusRate {
  BusOp op;
  int64_t ranks = 1, bytes = 0;  // of a group; of the whole tensor
  double seconds = 0;            // of one call, on average over the ranks
  int64_t wrong = 0;             // elements with another value than expected, on all ranks
  double algorithm() const { return static_cast<double>(bytes) / seconds; }  // bytes/s
  double bus() const { return algorithm() * bus_factor(op, ranks); }         // what the slowest link carries, whatever the ranks
  static double bus_factor(BusOp op, int64_t ranks);
};

// Measures collectives in memory of its own. All ranks of the world call the same functions.
class BusTrial {
 public:
  BusTrial(const Comm& all, Device& device, int64_t most_bytes);
  // All groups of the axis at the same time. `bytes` is rounded up to whole elements of each rank. Calls the op for about
  // `seconds`. send_receive: each rank to the next, as a pipeline does, without the last; on GPUs along pp only.
  BusRate measure(const Comm& axis, BusOp op, int64_t bytes, double seconds);
  // The bytes/s of this rank's group.
  double own_rate(const Comm& axis, BusOp op, int64_t bytes, double seconds);

 private:
  void call(const Comm& axis, BusOp op, int64_t elements);
  double time(const Comm& axis, BusOp op, int64_t elements, double seconds);  // of one call, on this rank
  int64_t check(const Comm& axis, BusOp op, int64_t elements);
  int64_t count_others(const Tensor& x, float expected);

  const Comm& all_;
  Device& device_;
  Arena arena_;
  Tensor x_, y_;
};

}  // namespace trireme
