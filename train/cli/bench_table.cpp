#include "train/cli/bench_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/number_format.h"
#include "base/philox.h"
#include "kernels/cuda_facts.h"
#include "train/telemetry/log.h"

namespace trireme {

Estimate estimate(const std::vector<double>& values) {
  constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
                                   2.179,  2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};  // 0.975, from 1 degree on
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const size_t degrees = values.size() - 1;
  const double quantile = degrees <= std::size(kQuantiles) ? kQuantiles[degrees - 1] : 1.96 + 2.5 / static_cast<double>(degrees);
  return {.mean = mean, .margin = quantile * std::sqrt(squares / (n - 1) / n)};
}

Ceilings measure_ceilings(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, int64_t copied) {
  return {.copy = copy_bandwidth(device, copied),
          .products = product_rate(device, dtype, shapes),
          .instructions = instruction_rate(device, dtype)};
}

void introduce(const Device& device, const Ceilings& best, const char* of) {
  if (device.place() == Place::cuda)
    say(cuda_facts().device);
  else
    say(row("%s, %d threads, bf16 products: %s", device.cpu().name.c_str(), device.threads(), device.cpu().bf16_path().c_str()));
  say(row("measured now: copy %.1f GB/s (read and written), %s %.0f GFLOP/s", best.copy, of, best.products));
  if (best.instructions > 0) say(row("and instructions that multiply and add, in registers, %.0f GFLOP/s", best.instructions));
  say("");
}

std::string device_name(const Device& device) { return device.place() == Place::cuda ? cuda_facts().device : device.cpu().name; }

Json json_of(const Ceilings& best) {
  Json out{{"copy_bytes_per_second", best.copy * 1e9}, {"product_flops_per_second", best.products * 1e9}};
  if (best.instructions > 0) out["instruction_flops_per_second"] = best.instructions * 1e9;
  return out;
}

RandomBatch::RandomBatch(const RunConfig& config) {
  const int64_t rows = config.train.batch, context = config.model.context;
  for (auto& field : ids_) field.assign(static_cast<size_t>(rows * context), 0);
  for (size_t i = 0; i < ids_[0].size(); ++i) {
    ids_[0][i] = static_cast<int32_t>(philox64(1, i) % static_cast<uint64_t>(config.model.vocab));
    ids_[1][i] = static_cast<int32_t>(philox64(2, i) % static_cast<uint64_t>(config.model.vocab));
    ids_[2][i] = static_cast<int32_t>(static_cast<int64_t>(i) % context);
  }
  const auto tensor = [&](std::vector<int32_t>& field) { return Tensor(field.data(), Dtype::i32, Place::cpu, {rows, context}); };
  batch = {.tokens = tensor(ids_[0]),
           .targets = tensor(ids_[1]),
           .positions = tensor(ids_[2]),
           .document_start = tensor(ids_[3]),
           .valid = rows * context};
}

}  // namespace trireme
