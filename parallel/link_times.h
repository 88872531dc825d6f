// LinkTimes: the fastest exchange along each link of a rank. Most exchanges also wait for ranks that
// come later; the fastest of many has waited least, and bounds the link's own time.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace trireme {

// Ranks of the world that exchange along an axis: from `from` to `to`, or all of the group from `from` to `to`.
struct LinkTime {
  std::array<char, 8> along{};
  int32_t from = 0, to = 0;
  int32_t message = 0;           // 1: between two ranks; 0: a collective
  float seconds = 0, bytes = 0;  // of the exchange with the least seconds per byte; bytes that this rank sent or received
  double per_byte() const { return static_cast<double>(seconds) / static_cast<double>(bytes); }
  bool same(const LinkTime& other) const {
    return along == other.along && from == other.from && to == other.to && message == other.message;
  }
};

// Thread-safe.
class LinkTimes {
 public:
  static constexpr int64_t kLeast = 4096;  // bytes; a smaller exchange is not counted, as its time is all latency
  static constexpr size_t kMost = 6;       // links of a rank; those beyond are not counted

  void add(const LinkTime& link);
  std::vector<LinkTime> take();  // since the last call

 private:
  std::mutex mutex_;
  std::vector<LinkTime> links_;
};

}  // namespace trireme
