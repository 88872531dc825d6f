#include "kernels/race_checker.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

uintptr_t address(const void* data) { return reinterpret_cast<uintptr_t>(data); }
uintptr_t end_of(const OrderChecker::Access& a) { return address(a.data) + static_cast<uintptr_t>(a.bytes); }
bool empty(const OrderChecker::Access& a) { return a.data == nullptr || a.bytes == 0; }

uint64_t known(const std::vector<uint64_t>& clock, size_t lane) { return lane < clock.size() ? clock[lane] : 0; }

// Position of a range in a tensor: "bytes 64 to 128 of 256".
std::string place_in(const OrderChecker::Access& a, uintptr_t begin, uintptr_t end) {
  return text("bytes ", begin - address(a.data), " to ", end - address(a.data), " of ", a.bytes);
}

}  // namespace

const OrderChecker::Clock& OrderChecker::Track::clock() const {
  static const Clock none;
  return waits.empty() ? none : waits.back().second;
}

size_t OrderChecker::lane(const std::string& name) {
  const auto at = std::find_if(lanes_.begin(), lanes_.end(), [&](const Track& track) { return track.name == name; });
  if (at != lanes_.end()) return static_cast<size_t>(at - lanes_.begin());
  lanes_.push_back({.name = name, .records = 0, .waits = {}});
  return lanes_.size() - 1;
}

// Clock of the moment's lane, for the other lanes, when the moment was recorded.
const OrderChecker::Clock& OrderChecker::clock_of(const Moment& moment) const {
  static const Clock none;
  const auto& waits = lanes_[moment.lane].waits;
  const auto later = std::partition_point(waits.begin(), waits.end(), [&](const auto& wait) { return wait.first < moment.record; });
  return later == waits.begin() ? none : std::prev(later)->second;
}

void OrderChecker::wait(size_t lane, const Moment& moment) {
  if (moment.record == 0 || moment.lane == lane) return;
  Track& track = lanes_[lane];
  Clock clock = track.clock();
  clock.resize(lanes_.size());
  const Clock& other = clock_of(moment);
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  clock[moment.lane] = std::max(clock[moment.lane], moment.record);
  if (clock != track.clock()) track.waits.emplace_back(track.records, std::move(clock));
}

// Splits the range at this address, if there is one.
void OrderChecker::cut(uintptr_t at) {
  const auto next = ranges_.lower_bound(at);
  if (next == ranges_.begin()) return;
  Range& range = std::prev(next)->second;
  if (range.end <= at) return;
  Range upper = range;
  range.end = at;
  ranges_.emplace_hint(next, at, std::move(upper));
}

void OrderChecker::require_order(const Use& before, const Access& now, const Ranges::value_type& range, const char* verbs) const {
  const Access& then = before.access;
  if (then.lane == now.lane || known(lanes_[now.lane].clock(), then.lane) >= before.record) return;
  const std::string &lane = lanes_[now.lane].name, &other = lanes_[then.lane].name;
  throw Error(text("the ", lane, " lane's ", now.op, " ", verbs, " the ", other, " lane's ", then.op, " (", then.at.file_name(),
                   ":", then.at.line(), ") without an order between them: ", lane, ".wait(", other,
                   ".record()) is missing between them; this access: ", place_in(now, range.first, range.second.end),
                   ", the other: ", place_in(then, range.first, range.second.end)),
              now.at);
}

void OrderChecker::read(const Access& access) {
  if (empty(access)) return;
  const uintptr_t begin = address(access.data), end = end_of(access);
  cut(begin), cut(end);
  for (uintptr_t at = begin; at < end;) {
    auto range = ranges_.lower_bound(at);
    if (range == ranges_.end() || range->first > at) {  // no access is known from here to the next range
      const uintptr_t next = range == ranges_.end() ? end : std::min(end, range->first);
      range = ranges_.emplace_hint(range, at, Range{.end = next, .write = {}, .reads = {}});
    }
    Range& known = range->second;
    if (known.write.record > 0) require_order(known.write, access, *range, "reads what was written by");
    const auto same =
        std::find_if(known.reads.begin(), known.reads.end(), [&](const Use& r) { return r.access.lane == access.lane; });
    (same != known.reads.end() ? *same : known.reads.emplace_back()) = use(access);
    at = known.end;
  }
}

void OrderChecker::write(const Access& access) {
  if (empty(access)) return;
  const uintptr_t begin = address(access.data), end = end_of(access);
  cut(begin), cut(end);
  const auto first = ranges_.lower_bound(begin), last = ranges_.lower_bound(end);
  for (auto range = first; range != last; ++range) {
    const Range& known = range->second;
    if (known.write.record > 0) require_order(known.write, access, *range, "writes what was written by");
    for (const Use& read : known.reads) require_order(read, access, *range, "writes what was read by");
  }
  ranges_.emplace_hint(ranges_.erase(first, last), begin, Range{.end = end, .write = use(access), .reads = {}});
}

void OrderChecker::forget(const void* data, int64_t bytes) {
  const uintptr_t begin = address(data), end = begin + static_cast<uintptr_t>(bytes);
  cut(begin), cut(end);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
}

}  // namespace trireme
