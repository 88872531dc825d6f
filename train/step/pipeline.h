// Pipeline: messages between pipeline stages, before and after each action of a schedule. Forward
// sends the residual stream to the next chunk of the model, backward its gradient to the previous.
//
// Sends and receives of each direction have their own lane, so a message never waits for another
// direction. The messages of a lane arrive in the order in which the peer sends them. A message is
// received directly into its place. Its receive is posted one action before it is needed, if the slot
// is free by then: a GPU that waits for a message spends multiprocessors on it. Later would be too late:
// interleaved stages could wait for each other.
#pragma once

#include <vector>

#include "model/stage.h"
#include "parallel/schedule.h"

namespace trireme {

class Pipeline {
 public:
  // The arguments must outlive the pipeline.
  Pipeline(const Comm& pp, Device& device, const Stage& stage);

  // Starts a schedule at its first action. `actions` must stay valid until the last. In a schedule
  // without backward, a slot is free after its forward.
  void begin(const std::vector<Action>& actions);
  // Call before action i: makes the compute lane wait for its inputs, and for sends from memory that
  // it overwrites.
  void before(size_t i);
  // Call after action i: sends its result.
  void after(size_t i);

  Seat seat(const Action& action) const;

 private:
  enum Lane : size_t { forward_in, forward_out, backward_in, backward_out };
  bool receives(const Action& action) const;
  bool sends(const Action& action) const;
  void post(Lane lane, ActionKind kind, size_t i);
  bool free_for(size_t wanted, size_t i) const;
  static size_t index(const Action& action) { return static_cast<size_t>(action.slot); }

  const Comm& pp_;
  Device& device_;
  const Stage& stage_;
  const std::vector<Action>* actions_ = nullptr;
  Event sent_[Stage::kTurns];     // by turn: the stream was sent
  std::vector<Event> sent_back_;  // by slot: the gradient was
  std::vector<Event> arrived_;    // by action
  size_t posted_[2] = {0, 0};     // receives of the actions before this one are posted: forward, backward
};

}  // namespace trireme
