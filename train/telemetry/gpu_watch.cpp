#include "train/telemetry/gpu_watch.h"

#include <utility>

#include "base/number_format.h"

namespace trireme {

std::vector<GpuNews> GpuWatch::look(const EnergyRecord& record) {
  std::vector<GpuNews> news;
  for (const auto& [rank, reading] : record.ranks) {
    if (!reading.gpu) continue;
    const GpuHealth& gpu = *reading.gpu;
    const std::string whose = "warning: rank " + std::to_string(rank) + " (" + reading.host + ", GPU " + gpu.bus + "): ";
    Known& known = known_[rank];
    for (const auto& [xid, count] : gpu.xids) {
      if (std::exchange(known.xids[xid], count) >= count) continue;
      const std::string words(xid_words(xid));
      news.push_back(
          {"xid_" + std::to_string(xid),
           whose + "Xid " + std::to_string(xid) + (words.empty() ? "; NVIDIA's list of Xid errors explains it" : ", " + words)});
    }
    const double uncorrected = gpu.ecc_uncorrected.value_or(known.uncorrected);
    if (const double before = std::exchange(known.uncorrected, uncorrected); known.seen && uncorrected > before)
      news.push_back({"gpu_memory", whose + fixed(uncorrected - before, 0) + " memory errors that were not corrected"});
    known.seen = true;
    uint64_t grave = 0;
    for (const ThrottleReason& reason : throttle_reasons()) grave |= reason.grave && has(gpu, reason) ? reason.bit : 0;
    if ((grave & ~std::exchange(known.throttled, known.throttled | grave)) != 0)
      news.push_back({"gpu_throttled", whose + clock_words(gpu)});
  }
  return news;
}

}  // namespace trireme
