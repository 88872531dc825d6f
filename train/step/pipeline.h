// Pipeline: messages between pipeline stages, before and after each action of a schedule. Forward
// sends the residual stream to the next chunk of the model, backward its gradient to the previous.
//
// Sends and receives of each direction have their own lane, so a message never waits for another
// direction. The messages of a lane arrive in the order in which the peer sends them. A message is
// received directly into its place. Its receive is posted one action before it is needed, if the slot
// is free by then: a GPU that waits for a message spends multiprocessors on it. Later would be too late:
// interleaved stages could wait for each other. Where the model's pieces turn, the last stage takes
// what its first chunk has computed for its second, and the gradient of that for the first.
#pragma once

#include <optional>
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
  enum Lane : size_t { forward_in, forward_out, backward_in, backward_out };  // four more for chunks that come back
  // Another rank that an action receives from or sends to, if any. The channel is that of the message.
  struct Peer {
    int64_t rank;
    Channel channel;
  };
  std::optional<Peer> source(const Action& action) const;
  std::optional<Peer> target(const Action& action) const;
  std::optional<Peer> peer(const Action& action, int64_t step) const;
  bool turns_here() const { return shape_.turns && pp_.rank() + 1 == pp_.size(); }
  void leave_turned(size_t i);
  Stream& pipe(Lane lane, bool turned) { return device_.pipe(lane + (turned ? 4 : 0)); }
  bool turned(const Action& action) const { return shape_.turns && action.chunk == 1; }
  void post(bool forward, bool turned, size_t i);
  bool free_for(size_t wanted, size_t i) const;
  static size_t index(const Action& action) { return static_cast<size_t>(action.slot); }

  const Comm& pp_;
  Device& device_;
  const Stage& stage_;
  const PipelineShape shape_;
  const std::vector<Action>* actions_ = nullptr;
  Event sent_[2 * Stage::kTurns];  // by turn: the stream was sent
  std::vector<Event> sent_back_;   // by slot: the gradient was
  std::vector<Event> arrived_;     // by action
  Tensor turned_;                  // on the last stage: the stream that its second chunk takes over
  size_t posted_[2][2] = {};       // receives of the actions before this one are posted: forward, or turned
};

}  // namespace trireme
