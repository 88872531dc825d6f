// OrderChecker: finds waits that are missing between the lanes of a device. For tests; Device::check_order() switches it on.
//
// It is told, in the order in which the host hands over, of every op's reads and writes (by the door) and of every record() and
// wait() (by the streams). Of two ops on different lanes that touch the same bytes, one of them writing, the second's lane must
// have waited for a record() made after the first, itself or through other lanes. Where it has not, read() or write() throws,
// whether or not the bytes were hurt this time. A lane that runs inline counts as one that runs beside the others: the CPU's
// compute lane does on a GPU, and what its order lacks there is found here.
//
// Each lane has a vector clock (Fidge, "Timestamps in message-passing systems that preserve the partial ordering", 1988): of every
// lane the last record() that it comes after. Lanes keep the clocks of all their waits: memory grows with each.
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
  // A record() of a lane: all that it was handed before.
  struct Moment {
    size_t lane = 0;
    uint64_t record = 0;  // counted from 1; 0: nothing is known of it
  };
  // One tensor of an op.
  struct Access {
    size_t lane = 0;
    const char* op = nullptr;
    std::source_location at{};  // who handed it over
    const void* data = nullptr;
    int64_t bytes = 0;
  };

  // The number of the lane of this name, the same for the same name.
  size_t lane(const std::string& name);

  Moment record(size_t lane) { return {.lane = lane, .record = ++lanes_[lane].records}; }
  void wait(size_t lane, const Moment& moment);
  // Throw Error, with both ops and their callers, when the access is not ordered with an earlier one.
  void read(const Access& access);
  void write(const Access& access);
  // What becomes of this memory next has nothing to do with what it was.
  void forget(const void* data, int64_t bytes);
  void forget_all() { ranges_.clear(); }

 private:
  using Clock = std::vector<uint64_t>;  // by lane; lanes beyond its end: 0
  struct Track {                        // of a lane
    std::string name;
    uint64_t records = 0;
    std::vector<std::pair<uint64_t, Clock>> waits;  // its clock after each wait, and how many records were made before
    const Clock& clock() const;
  };
  struct Use {
    Access access;
    uint64_t record = 0;  // the first that covers it; 0: there was no such use
  };
  struct Range {
    uintptr_t end;
    Use write;               // the last
    std::vector<Use> reads;  // since then, the last of each lane
  };
  using Ranges = std::map<uintptr_t, Range>;  // by where they begin; they do not overlap

  const Clock& clock_of(const Moment& moment) const;
  Use use(const Access& access) const { return {.access = access, .record = lanes_[access.lane].records + 1}; }
  void cut(uintptr_t at);
  void require_order(const Use& before, const Access& now, const Ranges::value_type& range, const char* verbs) const;

  std::vector<Track> lanes_;
  Ranges ranges_;
};

}  // namespace trireme
