#include "train/telemetry/trace_text.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/clock.h"
#include "base/json.h"
#include "base/number_format.h"

namespace trireme {
namespace {

class EventList {
 public:
  explicit EventList(const RankTrace& trace, double zero) : rank_(trace.rank) {
    const double offset = unix_seconds() - std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    zero_ = zero - offset;
    name("process_name", 0, trace.described);
  }
  void lane(size_t lane, const std::string& lane_name) { name("thread_name", lane, lane_name); }
  void work(size_t lane, const TraceEvent& event) {
    std::string args;
    const auto arg = [&](const char* key, const std::string& value) { args += (args.empty() ? "" : ", ") + text_of(key) + value; };
    if (event.number >= 0) arg("number", std::to_string(event.number));
    if (event.axis[0] != '\0') arg("axis", Json(event.axis.data()).dump());
    if (event.peer >= 0) arg("peer", std::to_string(event.peer));
    if (event.bytes > 0) arg("bytes", fixed(event.bytes, 0));
    if (event.flops > 0) arg("flops", fixed(event.flops, 0));
    const double begin = micros(event.begin);
    add(R"("name": )" + Json(event.name).dump() + R"(, "ph": "X", "ts": )" + fixed(begin, 3) + R"(, "dur": )" +
            fixed(micros(event.end) - begin, 3) + R"(, "args": {)" + args + "}",
        lane);
  }
  // An arrow begins within a send and ends within its receive.
  void arrow(size_t lane, const TraceEvent& event, const std::string& id) {
    const bool sends = event.kind == TraceEvent::Kind::send;
    add(R"("name": "message", "cat": "message", "ph": ")" + std::string(sends ? "s" : "f") + (sends ? "" : R"(", "bp": "e)") +
            R"(", "id": ")" + id + R"(", "ts": )" + fixed(micros(sends ? event.begin : event.end), 3),
        lane);
  }
  std::string text() const { return text_; }

 private:
  static std::string text_of(const char* key) { return "\"" + std::string(key) + "\": "; }
  double micros(Clock::time_point time) const {
    return 1e6 * (std::chrono::duration<double>(time.time_since_epoch()).count() - zero_);
  }
  void name(const char* what, size_t lane, const std::string& value) {
    add(R"("name": ")" + std::string(what) + R"(", "ph": "M", "args": {"name": )" + Json(value).dump() + "}", lane);
  }
  void add(const std::string& fields, size_t lane) {
    text_ += (text_.empty() ? "{" : ",\n{") + fields + R"(, "pid": )" + std::to_string(rank_) + R"(, "tid": )" +
             std::to_string(lane) + "}";
  }

  const int64_t rank_;
  double zero_ = 0;
  std::string text_{};
};

struct TracedMessage {
  size_t lane;
  const TraceEvent* event;
};

}  // namespace

std::string trace_events(const RankTrace& trace, double zero) {
  EventList list(trace, zero);
  std::vector<TracedMessage> messages;
  for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
    if (trace.lanes[lane].events->empty()) continue;
    list.lane(lane, trace.lanes[lane].name);
    for (const TraceEvent& event : *trace.lanes[lane].events) {
      list.work(lane, event);
      if (event.peer >= 0) messages.push_back({lane, &event});
    }
  }
  std::ranges::stable_sort(messages, {}, [](const TracedMessage& m) { return m.event->begin; });
  // The n-th send of a rank to another through a channel is received by the other's n-th receive.
  std::map<std::tuple<TraceEvent::Kind, int32_t, int32_t>, int64_t> counts;
  for (const auto& [lane, event] : messages) {
    const bool sends = event->kind == TraceEvent::Kind::send;
    const int64_t from = sends ? trace.rank : event->peer, to = sends ? event->peer : trace.rank;
    const int64_t number = counts[{event->kind, event->peer, event->channel}]++;
    list.arrow(lane, *event, text(from, ">", to, " ", event->channel, " ", number));
  }
  return list.text();
}

std::string trace_text(const std::vector<std::string>& ranks) {
  std::string all = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) all += (rank == 0 || ranks[rank].empty() ? "" : ",\n") + ranks[rank];
  return all + "\n]}\n";
}

}  // namespace trireme
