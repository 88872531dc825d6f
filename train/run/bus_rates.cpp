#include "train/run/bus_rates.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"
#include "kernels/copy.h"
#include "kernels/ops/fill.h"
#include "parallel/collectives.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

constexpr int64_t kMostCalls = 200;

// Elements for so many bytes, equally many for each rank.
int64_t bus_elements(int64_t bytes, int64_t ranks) { return std::max<int64_t>(1, (bytes / 4 + ranks - 1) / ranks) * ranks; }

}  // namespace

double BusRate::bus_factor(BusOp op, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  switch (op) {
    case BusOp::all_reduce:
      return 2 * (n - 1) / n;
    case BusOp::all_gather:
    case BusOp::reduce_scatter:
      return (n - 1) / n;
    case BusOp::send_receive:
      return 1;
  }
  return 1;
}

BusTrial::BusTrial(const Comm& all, Device& device, int64_t most_bytes)
    : all_(all), device_(device), arena_(device, 2 * (most_bytes + 4 * all.size() + Arena::kAlign), "bus to measure") {
  const int64_t elements = most_bytes / 4 + all.size();
  x_ = arena_.take(Dtype::f32, {elements}), y_ = arena_.take(Dtype::f32, {elements});
}

void BusTrial::call(const Comm& axis, BusOp op, int64_t elements) {
  Stream& stream = device_.compute();
  const int64_t part = elements / axis.size(), rank = axis.rank(), size = axis.size();
  const Tensor x = x_.slice(0, elements), y = y_.slice(0, elements), mine = y_.slice(0, part);
  if (op == BusOp::all_reduce) run(axis, stream, AllReduce{.x = x});
  if (op == BusOp::all_gather) run(axis, stream, AllGather{.all = x, .part = mine});
  if (op == BusOp::reduce_scatter) run(axis, stream, ReduceScatter{.part = mine, .all = x});
  if (op != BusOp::send_receive) return;
  Stream &out = device_.pipe(0), &in = device_.pipe(1);  // in both directions at once, as nccl-tests does
  if (rank + 1 < size) run(axis, out, Send{.x = x, .peer = rank + 1, .channel = Channel::forward});
  if (rank > 0) run(axis, in, Receive{.x = y, .peer = rank - 1, .channel = Channel::forward});
  stream.wait(out.record()), stream.wait(in.record());
}

double BusTrial::time(const Comm& axis, BusOp op, int64_t elements, double seconds) {
  const auto timed = [&](int64_t calls) {
    largest(all_, 0);  // all begin together
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call(axis, op, elements);
    device_.compute().finish();
    return seconds_since(begin) / static_cast<double>(calls);
  };
  run(device_.compute(), Fill{.x = x_, .value = 0});  // sums of sums stay finite
  timed(1);
  const double slowest = 1e-9 * static_cast<double>(largest(all_, std::llround(1e9 * timed(2))));
  return timed(std::clamp<int64_t>(std::llround(seconds / slowest), 2, kMostCalls));
}

int64_t BusTrial::count_others(const Tensor& x, float expected) {
  std::vector<float> host(static_cast<size_t>(x.size()));
  copy(device_.compute(), Tensor(host.data(), Dtype::f32, Place::cpu, {x.size()}), x);
  device_.compute().finish();
  return std::ranges::count_if(host, [&](float value) { return value != expected; });
}

int64_t BusTrial::check(const Comm& axis, BusOp op, int64_t elements) {
  Stream& stream = device_.compute();
  const int64_t size = axis.size(), rank = axis.rank(), part = elements / size;
  const bool sums = op == BusOp::all_reduce || op == BusOp::reduce_scatter;
  run(stream, Fill{.x = x_, .value = sums ? 1.0f : static_cast<float>(rank + 1)});
  run(stream, Fill{.x = y_, .value = static_cast<float>(rank + 1)});
  stream.finish();  // before other lanes read them
  call(axis, op, elements);
  const auto all = static_cast<float>(size);
  if (op == BusOp::all_reduce) return count_others(x_.slice(0, elements), all);
  if (op == BusOp::reduce_scatter) return count_others(y_.slice(0, part), all);
  if (op == BusOp::send_receive) return rank == 0 ? 0 : count_others(y_.slice(0, elements), static_cast<float>(rank));
  int64_t wrong = 0;
  for (int64_t r = 0; r < size; ++r) wrong += count_others(x_.slice(r * part, (r + 1) * part), static_cast<float>(r + 1));
  return wrong;
}

BusRate BusTrial::measure(const Comm& axis, BusOp op, int64_t bytes, double seconds) {
  const int64_t elements = bus_elements(bytes, axis.size());
  const double mine = time(axis, op, elements, seconds);
  return {.op = op,
          .ranks = axis.size(),
          .bytes = 4 * elements,
          .seconds = sum(all_, {mine}).front() / static_cast<double>(all_.size()),
          .wrong = total(all_, check(axis, op, elements))};
}

double BusTrial::own_rate(const Comm& axis, BusOp op, int64_t bytes, double seconds) {
  const int64_t elements = bus_elements(bytes, axis.size());
  return 4 * static_cast<double>(elements) / time(axis, op, elements, seconds);
}

}  // namespace trireme
