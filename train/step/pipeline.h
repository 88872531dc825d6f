// Pipeline: the messages between the stages around each action of a schedule: the stream to the next piece of the model, its
// gradient to the one before.
//
// Each direction has a lane of its own, so that no message waits for one of another direction; the messages of a lane come in the
// order in which the other side sends them. A message is received where its seat keeps it, as soon as the seat is free.
#pragma once

#include <vector>

#include "model/stage.h"
#include "parallel/schedule.h"

namespace trireme {

class Pipeline {
 public:
  // All outlive it.
  Pipeline(const Comm& pp, Device& device, const Stage& stage);

  // The actions that follow are these, from the first. Without a backward, a seat is free after its forward.
  void begin(const std::vector<Action>& actions);
  // Before action number i of them: the compute lane finds what it reads, and may write what it writes.
  void before(size_t i);
  // After it: what it made is sent.
  void after(size_t i);

  Seat seat(const Action& action) const;

 private:
  enum Lane : size_t { forward_in, forward_out, backward_in, backward_out };
  struct Slot {
    Event sent, sent_back;  // the stream has left; its gradient has
  };
  bool receives(const Action& action) const;
  bool sends(const Action& action) const;
  void post(Lane lane, ActionKind kind, size_t i);
  bool free_for(size_t wanted, size_t i) const;
  Slot& slot(const Action& action) { return slots_[static_cast<size_t>(action.slot)]; }

  const Comm& pp_;
  Device& device_;
  const Stage& stage_;
  const std::vector<Action>* actions_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<Event> arrived_;  // by action
  size_t posted_[2] = {0, 0};   // actions up to here have their receive posted: forwards, backwards
};

}  // namespace trireme
