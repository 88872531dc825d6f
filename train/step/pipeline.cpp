#include "train/step/pipeline.h"

#include "parallel/collectives.h"

namespace trireme {
namespace {

bool is_forward(const Action& action) { return action.kind == ActionKind::forward; }
// True for the part of backward that receives and sends a gradient of the stream.
bool is_backward(const Action& action) { return action.kind == ActionKind::backward || action.kind == ActionKind::backward_input; }

}  // namespace

Pipeline::Pipeline(const Comm& pp, Device& device, const Stage& stage)
    : pp_(pp), device_(device), stage_(stage), sent_back_(stage.shape().slots.size()) {}

Seat Pipeline::seat(const Action& action) const {
  const bool halves = stage_.shape().halves;
  return {.chunk = action.chunk,
          .slot = action.slot,
          .loss_slot = action.microbatch % stage_.shape().loss_slots,
          .outgoing = is_forward(action) ? action.turn : Stage::kTurns + (halves ? action.slot : action.turn)};
}

bool Pipeline::receives(const Action& a) const {
  const ModelChunk& chunk = stage_.chunk_at(a.chunk);
  return (is_forward(a) && !chunk.first) || (is_backward(a) && !chunk.last);
}

bool Pipeline::sends(const Action& a) const {
  const ModelChunk& chunk = stage_.chunk_at(a.chunk);
  return (is_forward(a) && !chunk.last) || (is_backward(a) && !chunk.first);
}

void Pipeline::begin(const std::vector<Action>& actions) {
  actions_ = &actions;
  arrived_.assign(actions.size(), {});
  posted_[0] = posted_[1] = 0;
}

// True if action `wanted` may receive before action i runs: no action in between may use its slot, in which a forward is received.
// The gradient of a backward is received elsewhere, but not before its own forward.
bool Pipeline::free_for(size_t wanted, size_t i) const {
  for (size_t between = i; between < wanted; ++between)
    if ((*actions_)[between].slot == (*actions_)[wanted].slot) return false;
  return true;
}

// Posts the receives of one direction that action i and the next need, as far as their slots are free before action i. A gradient
// replaces that of the backward before last, which comes before action i; with backward in halves each slot has its own.
void Pipeline::post(Lane lane, ActionKind kind, size_t i) {
  const bool forward = kind == ActionKind::forward;
  size_t& next = posted_[forward ? 0 : 1];
  for (; next < actions_->size(); ++next) {
    const Action& a = (*actions_)[next];
    if (is_forward(a) != forward || !receives(a)) continue;
    if (next > i + 1 || !free_for(next, i)) return;
    Stream& stream = device_.pipe(lane);
    const int64_t size = pp_.size(), peer = (pp_.rank() + (forward ? size - 1 : 1)) % size;
    stream.wait(device_.compute().record());         // earlier work on the slot is computed
    if (forward) stream.wait(sent_back_[index(a)]);  // and sent
    run(pp_, stream,
        Receive{.x = forward ? stage_.incoming(seat(a)) : stage_.outgoing(seat(a)),
                .peer = peer,
                .channel = forward ? Channel::forward : Channel::backward});
    arrived_[next] = stream.record();
  }
}

void Pipeline::before(size_t i) {
  if (pp_.size() == 1) return;
  post(forward_in, ActionKind::forward, i);
  post(backward_in, ActionKind::backward, i);
  Stream& compute = device_.compute();
  const Action& a = (*actions_)[i];
  if (receives(a)) compute.wait(arrived_[i]);
  if (!is_forward(a)) return;
  compute.wait(sent_[static_cast<size_t>(a.turn)]);  // the stream of the pass before last, which this one overwrites
  compute.wait(sent_back_[index(a)]);                // and the gradient of an earlier one
}

void Pipeline::after(size_t i) {
  const Action& a = (*actions_)[i];
  if (pp_.size() == 1 || !sends(a)) return;
  const bool forward = is_forward(a);
  Stream& stream = device_.pipe(forward ? forward_out : backward_out);
  stream.wait(device_.compute().record());  // the result is computed
  const int64_t size = pp_.size(), peer = (pp_.rank() + (forward ? 1 : size - 1)) % size;
  run(pp_, stream,
      Send{.x = forward ? stage_.outgoing(seat(a)) : stage_.incoming(seat(a)),
           .peer = peer,
           .channel = forward ? Channel::forward : Channel::backward});
  (forward ? sent_[static_cast<size_t>(a.turn)] : sent_back_[index(a)]) = stream.record();
}

}  // namespace trireme
