#include "parallel/timeline.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"

namespace trireme {

Timeline simulate(const std::vector<std::vector<Action>>& stages, const PipelineShape& shape, const ActionTimes& times) {
  const int64_t v = shape.chunks;
  const auto duration = [&](ActionKind kind) {
    const double whole = kind == ActionKind::forward           ? times.forward
                         : kind == ActionKind::backward_input  ? times.backward_input
                         : kind == ActionKind::backward_weight ? times.backward_weight
                                                               : times.backward_input + times.backward_weight;
    return whole / static_cast<double>(v);
  };
  // Completion times by (piece, microbatch): of forwards, and of the gradients of the pieces'
  // inputs.
  std::map<std::pair<int64_t, int64_t>, double> forwards, backwards;
  Timeline timeline;
  timeline.stages.resize(stages.size());
  std::vector<size_t> next(stages.size(), 0);
  // The time at which an action's inputs are ready; negative if they are not yet.
  const auto ready = [&](const Action& a, int64_t stage) {
    const int64_t piece = shape.piece_of(stage, a.chunk), last = shape.pieces() - 1;
    const auto done = [&](const auto& times_of, int64_t of) {
      const auto at = times_of.find({of, a.microbatch});
      return at == times_of.end() ? -1.0 : at->second;
    };
    if (a.kind == ActionKind::forward) return piece == 0 ? 0.0 : done(forwards, piece - 1);
    if (a.kind == ActionKind::backward_weight) return done(backwards, piece);
    return piece == last ? done(forwards, piece) : done(backwards, piece + 1);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s)
      while (next[s] < stages[s].size()) {
        const Action& a = stages[s][next[s]];
        const double inputs = ready(a, static_cast<int64_t>(s));
        if (inputs < 0) break;
        const double begin = std::max(inputs, timeline.stages[s].empty() ? 0.0 : timeline.stages[s].back().end);
        const double end = begin + duration(a.kind);
        timeline.stages[s].push_back({a, begin, end});
        const std::pair key(shape.piece_of(static_cast<int64_t>(s), a.chunk), a.microbatch);
        if (a.kind == ActionKind::forward)
          forwards[key] = end;
        else if (a.kind != ActionKind::backward_weight)
          backwards[key] = end;
        timeline.end = std::max(timeline.end, end);
        ++next[s];
        moved = true;
      }
  }
  for (size_t s = 0; s < stages.size(); ++s)
    require(next[s] == stages[s].size(), text("the schedule waits forever: stage ", s, " at its action ", next[s]));
  timeline.busy = static_cast<double>(shape.microbatches) * (times.forward + times.backward_input + times.backward_weight);
  return timeline;
}

double bubble_formula(Schedule schedule, const PipelineShape& shape, const ActionTimes& t) {
  const double idle = static_cast<double>(shape.stages - 1), all = t.forward + t.backward_input + t.backward_weight;
  const double m = static_cast<double>(shape.microbatches), v = static_cast<double>(shape.chunks);
  if (schedule == Schedule::zero_bubble) return idle * (t.forward + t.backward_input - t.backward_weight) / (m * all);
  if (schedule == Schedule::zero_bubble_v) return idle * std::max({t.forward, t.backward_input, t.backward_weight}) / (2 * m * all);
  return idle / (m * v);
}

double bubble_of(Schedule schedule, const PipelineShape& shape, const ActionTimes& times) {
  const int64_t needed = schedule == Schedule::zero_bubble     ? shape.stages
                         : schedule == Schedule::zero_bubble_v ? 2 * shape.stages
                                                               : 1;
  const bool limited = schedule == Schedule::zero_bubble && shape.deferred > 0;
  if (shape.microbatches >= needed && !limited) return bubble_formula(schedule, shape, times);
  std::vector<std::vector<Action>> stages;
  for (int64_t stage = 0; stage < shape.stages; ++stage) stages.push_back(make_schedule(schedule, shape, stage));
  return simulate(stages, shape, times).bubble();
}

namespace {

// Geometry of the picture, in SVG units.
constexpr double kWidth = 1000, kLeft = 70, kTop = 34, kRow = 26;

const char* color_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "#4c78a8";
    case ActionKind::backward:
      return "#e0873a";
    case ActionKind::backward_input:
      return "#e0873a";
    case ActionKind::backward_weight:
      return "#59a14f";
  }
  return "";
}

// Appends one SVG element as one line of the file.
template <class... Values>
void append(std::string& out, const char* format, Values... values) {
  char line[400];
  std::snprintf(line, sizeof line, format, values...);
  out += line;
}

}  // namespace

std::string timeline_svg(const Timeline& timeline, const std::string& title) {
  const double height = kTop + kRow * static_cast<double>(timeline.stages.size()) + 26;
  const double scale = (kWidth - kLeft - 10) / timeline.end;
  std::string out;
  append(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n",
         kWidth, height);
  append(out,
         "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%.0f\" y=\"20\" font-size=\"14\">%s: bubble %.1f "
         "%%</text>\n",
         kLeft, title.c_str(), 100 * timeline.bubble());
  for (size_t s = 0; s < timeline.stages.size(); ++s) {
    const double y = kTop + kRow * static_cast<double>(s);
    append(out, "<text x=\"8\" y=\"%.1f\">stage %zu</text>\n", y + 16, s);
    for (const TimedAction& t : timeline.stages[s]) {
      const double x = kLeft + t.begin * scale, width = (t.end - t.begin) * scale;
      append(
          out,
          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\" fill-opacity=\"%.2f\" stroke=\"#fff\"><title>%s, "
          "microbatch %d, chunk %d</title></rect>\n",
          x, y, width, kRow - 3, color_of(t.action.kind), 1 - 0.25 * static_cast<double>(t.action.chunk % 4),
          name_of(t.action.kind), static_cast<int>(t.action.microbatch), static_cast<int>(t.action.chunk));
      if (width > 11)
        append(out, "<text x=\"%.2f\" y=\"%.1f\" fill=\"#fff\" text-anchor=\"middle\" font-size=\"10\">%d</text>\n", x + width / 2,
               y + 15, static_cast<int>(t.action.microbatch));
    }
  }
  append(out,
         "<text x=\"%.0f\" y=\"%.1f\" fill=\"#666\">blue: forward; orange: backward (of the input); green: of the weights; paler: "
         "later chunks</text>\n</svg>\n",
         kLeft, height - 8);
  return out;
}

}  // namespace trireme
