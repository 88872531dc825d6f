#include "train/bench_table.h"

#include <algorithm>

#include "kernels/cuda_facts.h"
#include "train/human.h"
#include "train/log.h"

namespace trireme {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Ceilings measure_ceilings(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes) {
  return {.copy = copy_bandwidth(device), .products = product_rate(device, dtype, shapes)};
}

void introduce(const Device& device, const Ceilings& best, const char* of) {
  if (device.place() == Place::cuda)
    say(cuda_facts().device);
  else
    say(row("%s, %d threads, bf16 products: %s", device.cpu().name.c_str(), device.threads(), device.cpu().bf16_path().c_str()));
  say(row("copy %.1f GB/s (read and written), %s %.0f GFLOP/s, both measured now", best.copy, of, best.products));
  say("");
}

}  // namespace trireme
