#include "kernels/copy.h"

#include <cstring>

#include "kernels/cuda_machine.h"

namespace trireme {

void copy(Stream& stream, const Tensor& to, const Tensor& from, std::source_location at) {
  require(to.dtype() == from.dtype() && to.size() == from.size(), text("a copy of ", from, " to ", to), at);
  for (const Tensor& t : {to, from})
    require(t.place() == stream.place() || t.place() == Place::cpu,
            text("a copy of place ", name_of(from.place()), " to ", name_of(to.place()), " on a lane of place ",
                 name_of(stream.place())),
            at);
  if (stream.place() == Place::none || to.size() == 0) return;
  if (OrderChecker* order = stream.order()) {
    order->read({.lane = stream.order_lane(), .op = "copy", .at = at, .data = from.data(), .bytes = from.bytes()});
    order->write({.lane = stream.order_lane(), .op = "copy", .at = at, .data = to.data(), .bytes = to.bytes()});
  }
  if (stream.place() == Place::cuda) return copy_bytes(*stream.cuda().lane, to.data(), from.data(), to.bytes());
  stream.execute([to = to.data(), from = from.data(), bytes = static_cast<size_t>(to.bytes())] { std::memcpy(to, from, bytes); });
}

}  // namespace trireme
