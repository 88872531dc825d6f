// OrderChecker: finds missing waits between the lanes of a device. For tests; Device::check_order()
// switches it on.
//
// In the order in which the host enqueues work, the door reports every op's reads and writes, and
// streams report every record() and wait(). If two ops on different lanes touch the same bytes and
// one writes, the second's lane must have waited for a record() made after the first, directly or
// through other lanes. Otherwise read() or write() throws, even if no bytes were corrupted this
// time. A lane that runs inline counts as concurrent: the CPU's compute lane is on a GPU, and this
// finds an order that is missing there.
//
// Each lane has a vector clock (Fidge, "Timestamps in message-passing systems that preserve the
// partial ordering", 1988): for every lane, the last record() that it comes after. Lanes keep the
// clocks of all their waits, so memory grows with each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

class OrderChecker {
 public:
  // A record() of a lane, for all work enqueued before.
  struct Moment {
    size_t lane = 0;
    uint64_t record = 0;  // counted from 1; 0: unknown
  };
  // One tensor of an op.
  struct Access {
    size_t lane = 0;
    const char* op = nullptr;
    std::source_location at{};  // the caller that enqueued it
    const void* data = nullptr;
    int64_t bytes = 0;
  };

  // Number of the lane of this name; the same name always has the same number.
  size_t lane(const std::string& name);

  Moment record(size_t lane) { return {.lane = lane, .record = ++lanes_[lane].records}; }
  void wait(size_t lane, const Moment& moment);
  // Throws Error, with both ops and their callers, if the access is not ordered after an earlier
  // one.
  void read(const Access& access);
  void write(const Access& access);
  // Forgets earlier accesses to this memory, since it is to be reused.
  void forget(const void* data, int64_t bytes);
  void forget_all() { ranges_.clear(); }

 private:
  using Clock = std::vector<uint64_t>;  // by lane; 0 for lanes beyond its end
  struct Track {                        // history of a lane
    std::string name;
    uint64_t records = 0;
    std::vector<std::pair<uint64_t, Clock>> waits;  // its clock after each wait, and the number of records made before
    const Clock& clock() const;
  };
  struct Use {
    Access access;
    uint64_t record = 0;  // the first record that covers it; 0: no such use
  };
  struct Range {
    uintptr_t end;
    Use write;               // the last
    std::vector<Use> reads;  // since then, the last of each lane
  };
  using Ranges = std::map<uintptr_t, Range>;  // keyed by first address; they do not overlap

  const Clock& clock_of(const Moment& moment) const;
  Use use(const Access& access) const { return {.access = access, .record = lanes_[access.lane].records + 1}; }
  void cut(uintptr_t at);
  void require_order(const Use& before, const Access& now, const Ranges::value_type& range, const char* verbs) const;

  std::vector<Track> lanes_;
  Ranges ranges_;
};

}  // namespace trireme
