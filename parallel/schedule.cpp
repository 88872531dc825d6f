#include "parallel/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace trireme {
namespace {

using Actions = std::vector<Action>;

void add(Actions& actions, ActionKind kind, int64_t microbatch, int64_t chunk = 0) {
  actions.push_back({.kind = kind, .microbatch = microbatch, .chunk = chunk, .slot = 0});
}

// `ahead` forwards, then one forward and one backward in turn.
Actions one_forward_one_backward(int64_t m, int64_t ahead) {
  Actions actions;
  for (int64_t i = 0; i < ahead; ++i) add(actions, ActionKind::forward, i);
  for (int64_t i = 0; i < m; ++i) {
    add(actions, ActionKind::backward, i);
    if (i + ahead < m) add(actions, ActionKind::forward, i + ahead);
  }
  return actions;
}

// Stage s may defer its weights' gradients by s microbatches, or fewer: with the p - s forwards it is
// ahead, p are in flight.
Actions zero_bubble(const PipelineShape& shape, int64_t stage) {
  const int64_t m = shape.microbatches, ahead = std::min(shape.stages - stage, m);
  const int64_t deferred = shape.deferred > 0 ? std::min(stage, shape.deferred) : stage;
  Actions actions;
  for (int64_t i = 0; i < ahead; ++i) add(actions, ActionKind::forward, i);
  for (int64_t i = 0; i < m; ++i) {
    add(actions, ActionKind::backward_input, i);
    if (i >= deferred) add(actions, ActionKind::backward_weight, i - deferred);
    if (i + ahead < m) add(actions, ActionKind::forward, i + ahead);
  }
  for (int64_t i = std::max<int64_t>(m - deferred, 0); i < m; ++i) add(actions, ActionKind::backward_weight, i);
  return actions;
}

// Groups of p microbatches pass chunk 0, then chunk 1, ...; their backwards start with the last
// chunk.
Actions interleaved(const PipelineShape& shape, int64_t stage) {
  const int64_t p = shape.stages, v = shape.chunks, total = shape.microbatches * v;
  const auto microbatch = [&](int64_t i) { return i / (p * v) * p + i % p; };
  const auto chunk = [&](int64_t i) { return i % (p * v) / p; };
  const int64_t ahead = std::min(2 * (p - stage - 1) + (v - 1) * p + 1, total);
  Actions actions;
  for (int64_t i = 0; i < ahead; ++i) add(actions, ActionKind::forward, microbatch(i), chunk(i));
  for (int64_t i = 0; i < total; ++i) {
    add(actions, ActionKind::backward, microbatch(i), v - 1 - chunk(i));
    if (i + ahead < total) add(actions, ActionKind::forward, microbatch(i + ahead), chunk(i + ahead));
  }
  return actions;
}

// A stage's actions of a V, counted by kind and chunk.
class InV {
 public:
  void add(ActionKind kind, int64_t chunk) {
    trireme::add(actions_, kind, count(kind, chunk), chunk);
    ++counts_[{kind, chunk}];
  }
  void backward(int64_t chunk) { add(ActionKind::backward_input, chunk), add(ActionKind::backward_weight, chunk); }
  int64_t count(ActionKind kind, int64_t chunk) { return counts_[{kind, chunk}]; }
  // Only those of microbatches below m.
  Actions below(int64_t m) && {
    std::erase_if(actions_, [&](const Action& a) { return a.microbatch >= m; });
    return std::move(actions_);
  }

 private:
  Actions actions_;
  std::map<std::pair<ActionKind, int64_t>, int64_t> counts_;
};

// As for at least 2 p microbatches, without those that there are not.
Actions zero_bubble_v(const PipelineShape& shape, int64_t stage) {
  using enum ActionKind;
  const int64_t p = shape.stages, m = std::max(shape.microbatches, 2 * p);
  InV v;
  for (int64_t i = 2 * (p - stage) - 1; i > 0; --i) v.add(forward, 0);
  for (int64_t i = stage; i > 0; --i) v.add(forward, 1), v.add(forward, 0);
  for (int64_t i = p - stage; i > 0; --i) v.add(forward, 1), v.backward(1);
  while (v.count(forward, 1) < m) {
    if (v.count(forward, 0) < m) v.add(forward, 0);
    v.backward(0), v.add(forward, 1), v.backward(1);
  }
  // Weights' gradients wait until no other stage does.
  for (int64_t i = stage; i > 0; --i) v.add(backward_input, 0), v.add(backward_input, 1);
  while (v.count(backward_input, 0) < m) v.backward(0);
  for (const int64_t chunk : {1, 0})
    while (v.count(backward_weight, chunk) < m) v.add(backward_weight, chunk);
  return std::move(v).below(shape.microbatches);
}

void take_turns(Actions& actions, bool by_chunk) {
  std::map<std::pair<bool, int64_t>, int64_t> counts;
  for (Action& a : actions) {
    if (a.kind == ActionKind::backward_weight) continue;
    const int64_t chunk = by_chunk ? a.chunk : 0;
    a.turn = 2 * chunk + counts[{a.kind == ActionKind::forward, chunk}]++ % 2;
  }
}

void take_places_for_again(Actions& actions) {
  std::set<int64_t> free;
  int64_t places = 0;
  std::map<std::pair<int64_t, int64_t>, int64_t> held;  // (microbatch, chunk) -> place
  for (Action& a : actions) {
    const auto key = std::pair(a.microbatch, a.chunk);
    if (a.kind == ActionKind::backward_input) {
      if (free.empty()) free.insert(places++);
      held[key] = a.again = *free.begin();
      free.erase(free.begin());
    } else if (a.kind == ActionKind::backward_weight) {
      a.again = held.at(key);
      free.insert(a.again);
    }
  }
}

void take_slots(Actions& actions) {
  std::set<int64_t> free;
  std::map<std::pair<int64_t, int64_t>, int64_t> held;  // (microbatch, chunk) -> slot
  for (Action& a : actions) {
    const auto key = std::pair(a.microbatch, a.chunk);
    if (a.kind == ActionKind::forward) {
      if (free.empty()) free.insert(std::ssize(held));
      held[key] = *free.begin();
      free.erase(free.begin());
    }
    a.slot = held.at(key);
    if (!ends_pass(a.kind)) continue;
    free.insert(a.slot);
    held.erase(key);
  }
}

}  // namespace

std::string schedule_problem(Schedule schedule, const PipelineShape& shape) {
  if (schedule == Schedule::zero_bubble_v) {
    if (shape.chunks == 2 && shape.turns && shape.stages > 1) return "";
    return text("runs two chunks that turn on each of several stages, not ", shape.chunks, " on ", shape.stages);
  }
  if (shape.turns || (schedule != Schedule::interleaved && shape.chunks != 1))
    return text("runs one chunk a stage, not ", shape.chunks, ": only interleaved runs more");
  if (schedule == Schedule::interleaved && shape.microbatches % shape.stages != 0)
    return text("needs microbatches in groups of parallel.pp = ", shape.stages, ", not ", shape.microbatches, " of them");
  return "";
}

std::vector<Action> make_schedule(Schedule schedule, const PipelineShape& shape, int64_t stage) {
  require(0 <= stage && stage < shape.stages && shape.microbatches >= 1 && shape.chunks >= 1,
          text("stage ", stage, " of ", shape.stages, " with ", shape.microbatches, " microbatches"));
  const std::string problem = schedule_problem(schedule, shape);
  require(problem.empty(), text("schedule ", name_of(schedule), " ", problem));
  Actions actions;
  switch (schedule) {
    case Schedule::gpipe:
      actions = one_forward_one_backward(shape.microbatches, shape.microbatches);
      break;
    case Schedule::one_f_one_b:
      actions = one_forward_one_backward(shape.microbatches, std::min(shape.stages - stage, shape.microbatches));
      break;
    case Schedule::interleaved:
      actions = interleaved(shape, stage);
      break;
    case Schedule::zero_bubble:
      actions = zero_bubble(shape, stage);
      break;
    case Schedule::zero_bubble_v:
      actions = zero_bubble_v(shape, stage);
      break;
  }
  take_turns(actions, shape.turns);
  take_places_for_again(actions);
  take_slots(actions);
  return actions;
}

std::vector<Action> make_forward_schedule(const PipelineShape& shape, int64_t stage, int64_t slots) {
  require(0 <= stage && stage < shape.stages && slots > 0, text("stage ", stage, " of ", shape.stages, ", ", slots, " slots"));
  Actions actions;
  if (shape.turns) {
    // A stage is as far ahead of the next as a microbatch needs to come back.
    const int64_t m = shape.microbatches, ahead = std::min(2 * (shape.stages - 1 - stage) + 1, m);
    for (int64_t i = 0; i < ahead; ++i) add(actions, ActionKind::forward, i, 0);
    for (int64_t i = 0; i < m; ++i) {
      add(actions, ActionKind::forward, i, 1);
      if (i + ahead < m) add(actions, ActionKind::forward, i + ahead, 0);
    }
  }
  // Otherwise groups of `stages` microbatches pass chunk 0, then chunk 1, ...: a stage waits for others
  // only at the ends.
  for (int64_t group = shape.turns ? shape.microbatches : 0; group < shape.microbatches; group += shape.stages)
    for (int64_t chunk = 0; chunk < shape.chunks; ++chunk)
      for (int64_t i = group; i < std::min(group + shape.stages, shape.microbatches); ++i)
        add(actions, ActionKind::forward, i, chunk);
  take_turns(actions, shape.turns);
  for (size_t i = 0; i < actions.size(); ++i) actions[i].slot = static_cast<int64_t>(i) % std::min<int64_t>(slots, 2);
  return actions;
}

int64_t slots_of(const std::vector<Action>& actions) {
  int64_t slots = 0;
  for (const Action& a : actions) slots = std::max(slots, a.slot + 1);
  return slots;
}

int64_t agains_of(const std::vector<Action>& actions) {
  int64_t count = 0;
  for (const Action& a : actions)
    if (a.kind == ActionKind::backward_weight) count = std::max(count, a.again + 1);
  return count;
}

}  // namespace trireme
