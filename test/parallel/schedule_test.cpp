// Every schedule, of every shape that a pipeline may have: what it does, what it holds, how long it waits.
#include "parallel/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "parallel/timeline.h"
#include "test/catch.h"

using namespace trireme;

namespace {

constexpr Schedule kSchedules[] = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble,
                                   Schedule::zero_bubble_v};

std::vector<std::vector<Action>> all_stages(Schedule schedule, const PipelineShape& shape) {
  std::vector<std::vector<Action>> stages;
  for (int64_t s = 0; s < shape.stages; ++s) stages.push_back(make_schedule(schedule, shape, s));
  return stages;
}

PipelineShape shape_of(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks) {
  return {.stages = stages, .microbatches = microbatches, .chunks = chunks, .turns = schedule == Schedule::zero_bubble_v};
}

void for_each_shape(const std::function<void(Schedule, const PipelineShape&)>& then) {
  for (const Schedule schedule : kSchedules)
    for (int64_t p = 1; p <= 16; ++p)
      for (int64_t m = 1; m <= 64; ++m)
        for (int64_t v = 1; v <= 4; ++v)
          if (const PipelineShape shape = shape_of(schedule, p, m, v); schedule_problem(schedule, shape).empty())
            then(schedule, shape);
}

std::string describe(Schedule schedule, const PipelineShape& shape) {
  return text(name_of(schedule), ", p = ", shape.stages, ", m = ", shape.microbatches, ", v = ", shape.chunks);
}

// Maximum of chunk-sized pieces of activations on stage s, from the schedules' papers.
int64_t in_flight(Schedule schedule, const PipelineShape& shape, int64_t s) {
  const int64_t p = shape.stages, m = shape.microbatches, v = shape.chunks;
  switch (schedule) {
    case Schedule::gpipe:
      return m;
    case Schedule::one_f_one_b:
      return std::min(p - s, m);
    case Schedule::interleaved:
      return std::min(2 * (p - s - 1) + (v - 1) * p + 1, m * v);
    case Schedule::zero_bubble:
      return std::min(p, m);
    case Schedule::zero_bubble_v:
      return std::min(2 * p, 2 * m);  // fewer if 2 p microbatches do not fill the pipeline
  }
  return 0;
}

// (microbatch, piece of the model) of each message to the next piece, or back to the previous, by
// the two stages involved; in the order of the sender or of the receiver.
using Messages = std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>>;
Messages messages(const std::vector<std::vector<Action>>& stages, const PipelineShape& shape, bool forward, bool sender) {
  Messages found;
  const int64_t p = shape.stages, pieces = shape.pieces();
  for (int64_t s = 0; s < p; ++s)
    for (const Action& a : stages[static_cast<size_t>(s)]) {
      if (a.kind == ActionKind::backward_weight || (a.kind == ActionKind::forward) != forward) continue;
      const int64_t piece = shape.piece_of(s, a.chunk), other = forward == sender ? piece + 1 : piece - 1;
      if (other < 0 || other >= pieces) continue;
      const int64_t stage = shape.stage_of(other);
      found[sender ? std::pair(s, stage) : std::pair(stage, s)].emplace_back(a.microbatch, sender ? other : piece);
    }
  return found;
}

struct Picture {
  const char* file;
  Schedule schedule;
  PipelineShape shape;
};
const Picture kPictures[] = {
    {"gpipe", Schedule::gpipe, {.stages = 4, .microbatches = 8}},
    {"1f1b", Schedule::one_f_one_b, {.stages = 4, .microbatches = 8}},
    {"interleaved", Schedule::interleaved, {.stages = 4, .microbatches = 8, .chunks = 2}},
    {"zero_bubble", Schedule::zero_bubble, {.stages = 4, .microbatches = 8}},
    {"zero_bubble_v", Schedule::zero_bubble_v, {.stages = 4, .microbatches = 8, .chunks = 2, .turns = true}},
};

std::string drawn(const Picture& picture) {
  const Timeline timeline = simulate(all_stages(picture.schedule, picture.shape), picture.shape, {});
  return timeline_svg(timeline, describe(picture.schedule, picture.shape));
}

std::string path_of(const Picture& picture) { return std::string(TRIREME_SOURCE "/docs/schedules/") + picture.file + ".svg"; }

// Graph of actions and messages, for messages that wait for their receiver, as on GPUs. A receive is posted
// `ahead` actions before its own, or later if its slot is in use, as train/step/pipeline.cpp does.
class Waits {
 public:
  Waits(const std::vector<std::vector<Action>>& stages, const PipelineShape& shape, size_t ahead) : shape_(shape) {
    for (size_t s = 0; s < stages.size(); ++s) add(stages[s], static_cast<int64_t>(s), ahead);
  }
  // True if all can happen: nothing waits for itself, and no gradient replaces one that is needed.
  bool end() const {
    std::map<Node, size_t> open;
    std::map<Node, std::vector<Node>> then;
    for (const auto& [node, earlier] : before_) {
      open[node] = earlier.size();
      for (const Node& other : earlier) then[other].push_back(node), open.try_emplace(other, 0);
    }
    std::vector<Node> ready;
    for (const auto& [node, count] : open)
      if (count == 0) ready.push_back(node);
    size_t ended = 0;
    for (; !ready.empty(); ++ended) {
      const Node node = ready.back();
      ready.pop_back();
      for (const Node& next : then[node])
        if (--open[next] == 0) ready.push_back(next);
    }
    return turns_ && ended == open.size();
  }

 private:
  // An action: (0, stage, its number). A message forward (1) or backward (2): (which, the piece that takes it, microbatch).
  using Node = std::array<int64_t, 3>;
  using Lane = std::tuple<bool, bool, bool>;  // forward, out, turned
  static bool is_forward(const Action& a) { return a.kind == ActionKind::forward; }

  // Messages that the action takes and sends, if any.
  std::optional<Node> taken(const Action& a, int64_t stage) const { return message(a, stage, 0); }
  std::optional<Node> sent(const Action& a, int64_t stage) const { return message(a, stage, 1); }
  std::optional<Node> message(const Action& a, int64_t stage, int64_t step) const {
    if (a.kind == ActionKind::backward_weight) return std::nullopt;
    const int64_t pieces = shape_.pieces(), from = shape_.piece_of(stage, a.chunk);
    const int64_t to = is_forward(a) ? from + step : from - step;
    const bool end = is_forward(a) ? to == 0 || to == pieces : to < 0 || to == pieces - 1;
    if (end) return std::nullopt;
    if (shape_.stage_of(to) == shape_.stage_of(is_forward(a) ? to - 1 : to + 1)) return std::nullopt;  // turns there
    return std::optional(Node{is_forward(a) ? 1 : 2, to, a.microbatch});
  }

  void add(const std::vector<Action>& actions, int64_t stage, size_t ahead) {
    std::map<Lane, Node> last;
    std::map<int64_t, Node> streams, gradients;  // sent: streams by turn, gradients by slot
    std::map<int64_t, size_t> backwards;         // by turn: the last
    const auto wait = [&](const Node& who, const std::map<int64_t, Node>& sent, int64_t which) {
      if (const auto found = sent.find(which); found != sent.end()) before_[who].insert(found->second);
    };
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      const Node me{0, stage, static_cast<int64_t>(i)};
      const bool turned = shape_.turns && a.chunk == 1;
      if (i > 0) before_[me].insert({0, stage, static_cast<int64_t>(i) - 1});
      if (is_forward(a)) wait(me, streams, a.turn), wait(me, gradients, a.slot);
      if (const auto message = taken(a, stage)) {
        size_t posted = i;
        while (posted > 0 && posted + ahead > i && actions[posted - 1].slot != a.slot) --posted;
        if (posted > 0) before_[*message].insert({0, stage, static_cast<int64_t>(posted) - 1});
        if (is_forward(a)) wait(*message, gradients, a.slot);
        // A gradient replaces that of the same turn, which its backward has used by then; with backward in halves, of the slot.
        if (const auto used = backwards.find(a.turn); a.kind == ActionKind::backward && used != backwards.end())
          turns_ &= ahead > 1 || used->second < posted;
        queue(last, {is_forward(a), false, turned}, *message);
        before_[me].insert(*message);
      }
      if (!is_forward(a) && a.kind != ActionKind::backward_weight) backwards[a.turn] = i;
      if (const auto message = sent(a, stage)) {
        before_[*message].insert(me);
        queue(last, {is_forward(a), true, turned}, *message);
        (is_forward(a) ? streams[a.turn] : gradients[a.slot]) = *message;
      }
    }
  }
  void queue(std::map<Lane, Node>& last, const Lane& lane, const Node& message) {
    if (last.contains(lane)) before_[message].insert(last[lane]);
    last[lane] = message;
  }

  PipelineShape shape_;
  std::map<Node, std::set<Node>> before_;
  bool turns_ = true;
};

}  // namespace

TEST_CASE("a stage computes each action of each microbatch once, forward before backward", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    for (const auto& actions : all_stages(schedule, shape)) {
      std::map<std::pair<int64_t, int64_t>, std::vector<ActionKind>> done;
      for (const Action& a : actions) done[{a.microbatch, a.chunk}].push_back(a.kind);
      const std::vector<ActionKind> wanted =
          schedule == Schedule::zero_bubble || schedule == Schedule::zero_bubble_v
              ? std::vector{ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight}
              : std::vector{ActionKind::forward, ActionKind::backward};
      bool right = done.size() == static_cast<size_t>(shape.microbatches * shape.chunks);
      for (const auto& [key, kinds] : done)
        right &=
            kinds == wanted && 0 <= key.first && key.first < shape.microbatches && 0 <= key.second && key.second < shape.chunks;
      if (!right) FAIL(describe(schedule, shape));
    }
  });
}

// A step's first gradients are written, and the others added to them.
TEST_CASE("each kind of backward of a chunk begins with microbatch 0", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    for (const std::vector<Action>& stage : all_stages(schedule, shape)) {
      std::set<std::pair<int64_t, ActionKind>> begun;
      for (const Action& a : stage)
        if (a.kind != ActionKind::forward && begun.emplace(a.chunk, a.kind).second && a.microbatch != 0)
          FAIL(describe(schedule, shape) << ": " << name_of(a.kind) << " of microbatch " << a.microbatch << " is the first");
    }
  });
}

TEST_CASE("no schedule waits forever, and its bubble is the formula's", "[unsanitized]") {
  int64_t shapes = 0;
  for_each_shape([&](Schedule schedule, const PipelineShape& shape) {
    for (const ActionTimes& times : {ActionTimes{}, ActionTimes{.forward = 1, .backward_input = 1.25, .backward_weight = 0.875},
                                     ActionTimes{.forward = 1, .backward_input = 1.9, .backward_weight = 1}}) {
      const Timeline timeline = simulate(all_stages(schedule, shape), shape, times);
      if (std::abs(timeline.bubble() - bubble_of(schedule, shape, times)) > 1e-9) FAIL(describe(schedule, shape));
      // With fewer microbatches than stages there are not enough weights' gradients to fill the zero bubble.
      if (schedule == Schedule::zero_bubble && shape.microbatches < shape.stages) continue;
      if (schedule == Schedule::zero_bubble_v && shape.microbatches < 2 * shape.stages) continue;
      if (std::abs(timeline.bubble() - bubble_formula(schedule, shape, times)) > 1e-9)
        FAIL(describe(schedule, shape) << ": " << timeline.bubble() << ", not " << bubble_formula(schedule, shape, times));
      ++shapes;
    }
  });
  CHECK(shapes > 7000);
}

TEST_CASE("the zero-bubble schedule idles less than 1f1b", "[unsanitized]") {
  for (int64_t p = 2; p <= 16; ++p)
    for (int64_t m = 2; m <= 64; ++m) {
      const PipelineShape shape{.stages = p, .microbatches = m};
      const double zero = simulate(all_stages(Schedule::zero_bubble, shape), shape, {}).bubble();
      if (zero >= simulate(all_stages(Schedule::one_f_one_b, shape), shape, {}).bubble())
        FAIL(describe(Schedule::zero_bubble, shape));
    }
}

TEST_CASE("messages between two stages are taken in the order in which they are sent", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    const auto stages = all_stages(schedule, shape);
    for (const bool forward : {true, false})
      if (messages(stages, shape, forward, true) != messages(stages, shape, forward, false)) FAIL(describe(schedule, shape));
  });
}

TEST_CASE("no stage waits for ever if a message waits for its receiver, if receives are posted an action ahead", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    if (shape.stages < 2 || shape.stages > 8 || shape.microbatches > 24) return;
    for (const size_t ahead : {1, 100})
      if (!Waits(all_stages(schedule, shape), shape, ahead).end()) FAIL(describe(schedule, shape) << ", " << ahead << " ahead");
  });
  // Posted at the last moment, two stages would wait for each other.
  const PipelineShape late{.stages = 2, .microbatches = 4, .chunks = 2};
  CHECK_FALSE(Waits(all_stages(Schedule::interleaved, late), late, 0).end());
  // Taken in another order than sent, messages would wait, too.
  const PipelineShape shape{.stages = 2, .microbatches = 2};
  auto stages = all_stages(Schedule::gpipe, shape);
  std::swap(stages[1][0], stages[1][1]);
  CHECK_FALSE(Waits(stages, shape, 1).end());
}

TEST_CASE("an evaluation passes each microbatch through each piece once, on the slots there are, messages in order") {
  for (int64_t p = 1; p <= 16; ++p)
    for (const int64_t m : {1, 2, 3, 7, 16, 40})
      for (int64_t way = 1; way <= 5; ++way)
        for (const int64_t slots : {1, 2, 5}) {
          const int64_t v = way == 5 ? 2 : way;
          const PipelineShape shape{.stages = p, .microbatches = m, .chunks = v, .turns = way == 5};
          if (shape.turns && p == 1) continue;
          CAPTURE(p, m, way, slots);
          std::vector<std::vector<Action>> stages;
          for (int64_t s = 0; s < p; ++s) {
            stages.push_back(make_forward_schedule(shape, s, slots));
            std::set<std::pair<int64_t, int64_t>> done;
            for (const Action& a : stages.back()) {
              if (a.kind == ActionKind::forward) done.emplace(a.microbatch, a.chunk);
              // A chunk's output goes to the stage of the next chunk and must arrive before it.
              if (a.chunk > 0 && !done.contains({a.microbatch, a.chunk - 1})) FAIL("out of order");
            }
            CHECK(done.size() == static_cast<size_t>(m * v));
            CHECK(stages.back().size() == done.size());
            CHECK(slots_of(stages.back()) <= slots);
          }
          CHECK(messages(stages, shape, true, true) == messages(stages, shape, true, false));
          if (p <= (shape.turns ? 8 : 4)) CHECK(Waits(stages, shape, 1).end());
        }
}

TEST_CASE("a stage holds as many activations as theory says, each in a slot of its own", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    for (int64_t s = 0; s < shape.stages; ++s) {
      const auto actions = make_schedule(schedule, shape, s);
      const bool few = schedule == Schedule::zero_bubble_v && shape.microbatches < 2 * shape.stages;
      if (few ? slots_of(actions) > in_flight(schedule, shape, s) : slots_of(actions) != in_flight(schedule, shape, s))
        FAIL(describe(schedule, shape) << ", stage " << s << ": " << slots_of(actions) << ", not "
                                       << in_flight(schedule, shape, s));
      std::map<int64_t, std::pair<int64_t, int64_t>> held;  // slot -> (microbatch, chunk)
      for (const Action& a : actions) {
        const std::pair key(a.microbatch, a.chunk);
        if (a.kind == ActionKind::forward ? held.contains(a.slot) : held.at(a.slot) != key) FAIL(describe(schedule, shape));
        held[a.slot] = key;
        if (ends_pass(a.kind)) held.erase(a.slot);
      }
      if (!held.empty()) FAIL(describe(schedule, shape));
    }
  });
}

namespace {

// The most passes between the halves of their backward at once, each with a place of its own. -1: two share one.
int64_t between_halves(const std::vector<Action>& actions) {
  std::map<int64_t, std::pair<int64_t, int64_t>> held;  // place -> (microbatch, chunk)
  int64_t most = 0;
  for (const Action& a : actions) {
    const std::pair key(a.microbatch, a.chunk);
    if (a.kind == ActionKind::backward_input && !held.emplace(a.again, key).second) return -1;
    if (a.kind == ActionKind::backward_weight && (!held.contains(a.again) || held.at(a.again) != key)) return -1;
    most = std::max(most, std::ssize(held));
    if (a.kind == ActionKind::backward_weight) held.erase(a.again);
  }
  return most;
}

}  // namespace

TEST_CASE("what backward computes again has a place from its first half to its second", "[unsanitized]") {
  for_each_shape([](Schedule schedule, const PipelineShape& shape) {
    for (int64_t s = 0; s < shape.stages; ++s) {
      const auto actions = make_schedule(schedule, shape, s);
      if (between_halves(actions) != agains_of(actions)) FAIL(describe(schedule, shape) << ", stage " << s);
    }
  });
}

TEST_CASE("fewer deferred microbatches hold less and idle more, never as long as 1f1b", "[unsanitized]") {
  for (int64_t p = 2; p <= 8; ++p)
    for (const int64_t m : {int64_t{1}, p - 1, p, 2 * p, 5 * p + 1}) {
      PipelineShape shape{.stages = p, .microbatches = m};
      const double one = bubble_of(Schedule::one_f_one_b, shape, {}), free = bubble_of(Schedule::zero_bubble, shape, {});
      double before = one;
      for (shape.deferred = 1; shape.deferred <= p; ++shape.deferred) {
        CAPTURE(p, m, shape.deferred);
        const auto stages = all_stages(Schedule::zero_bubble, shape);
        for (int64_t s = 0; s < p; ++s) {
          const auto& actions = stages[static_cast<size_t>(s)];
          const int64_t waits = std::min(s, shape.deferred);
          CHECK(agains_of(actions) == std::min(m, waits + 1));
          CHECK(between_halves(actions) == agains_of(actions));
          CHECK(slots_of(actions) == std::min(m, p - s + waits));
        }
        const double bubble = bubble_of(Schedule::zero_bubble, shape, {});
        CHECK(bubble <= before + 1e-9);
        CHECK((m == 1 || bubble < one));
        if (shape.deferred >= p - 1) CHECK(bubble == Approx(free).margin(1e-9));
        if (m <= 2 * p) CHECK(Waits(stages, shape, 1).end());
        before = bubble;
      }
    }
}

TEST_CASE("a schedule that deadlocks or cannot be is refused") {
  const PipelineShape two{.stages = 2, .microbatches = 2};
  auto stages = all_stages(Schedule::one_f_one_b, two);
  std::swap(stages[1][0], stages[1][1]);  // its backward before its forward
  CHECK_THROWS_WITH(simulate(stages, two, {}), ContainsSubstring("waits forever: stage"));
  CHECK(schedule_problem(Schedule::one_f_one_b, {.stages = 2, .microbatches = 2, .chunks = 2}) ==
        "runs one chunk a stage, not 2: only interleaved runs more");
  CHECK_THROWS_AS(make_schedule(Schedule::interleaved, {.stages = 4, .microbatches = 6, .chunks = 2}, 0), Error);
  CHECK_THROWS_AS(make_schedule(Schedule::gpipe, two, 2), Error);
}

TEST_CASE("the pictures in docs/schedules are drawn from the schedules") {
  for (const Picture& picture : kPictures) {
    std::ostringstream content;
    content << std::ifstream(path_of(picture)).rdbuf();
    INFO("draw them again: build/test/test_parallel '[pictures]'");
    CHECK(content.str() == drawn(picture));
  }
}

TEST_CASE("the pictures in docs/schedules are drawn again", "[.][pictures]") {
  for (const Picture& picture : kPictures) std::ofstream(path_of(picture)) << drawn(picture);
}
