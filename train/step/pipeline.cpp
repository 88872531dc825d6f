#include "train/step/pipeline.h"

#include "parallel/collectives.h"

namespace trireme {
namespace {

bool is_forward(const Action& action) { return action.kind == ActionKind::forward; }
// True for the part of backward that receives and sends a gradient of the stream.
bool is_backward(const Action& action) { return action.kind == ActionKind::backward || action.kind == ActionKind::backward_input; }

}  // namespace

Pipeline::Pipeline(const Comm& pp, Device& device, const Stage& stage)
    : pp_(pp), device_(device), stage_(stage), slots_(stage.shape().slots.size()) {}

Seat Pipeline::seat(const Action& action) const {
  return {.chunk = action.chunk, .slot = action.slot, .loss_slot = action.microbatch % stage_.shape().loss_slots};
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

// True if action `wanted` may receive before action i runs. A forward needs its slot, which no action
// in between may use; a backward needs its own forward to be sent.
bool Pipeline::free_for(size_t wanted, size_t i) const {
  for (size_t between = i; between < wanted; ++between)
    if ((*actions_)[between].slot == (*actions_)[wanted].slot) return false;
  return true;
}

// Posts the receives of one direction that action i and the next need, as far as their slots are free before action i.
void Pipeline::post(Lane lane, ActionKind kind, size_t i) {
  const bool forward = kind == ActionKind::forward;
  size_t& next = posted_[forward ? 0 : 1];
  for (; next < actions_->size(); ++next) {
    const Action& a = (*actions_)[next];
    if (is_forward(a) != forward || !receives(a)) continue;
    if (next > i + 1 || !free_for(next, i)) return;
    Stream& stream = device_.pipe(lane);
    const int64_t size = pp_.size(), peer = (pp_.rank() + (forward ? size - 1 : 1)) % size;
    stream.wait(device_.compute().record());                  // earlier work on the slot is computed
    stream.wait(forward ? slot(a).sent_back : slot(a).sent);  // and sent
    run(pp_, stream,
        Receive{.x = forward ? stage_.incoming(a.slot) : stage_.outgoing(a.slot),
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
  compute.wait(slot(a).sent);       // an earlier pass's stream, which this one overwrites
  compute.wait(slot(a).sent_back);  // and its gradient
}

void Pipeline::after(size_t i) {
  const Action& a = (*actions_)[i];
  if (pp_.size() == 1 || !sends(a)) return;
  const bool forward = is_forward(a);
  Stream& stream = device_.pipe(forward ? forward_out : backward_out);
  stream.wait(device_.compute().record());  // the result is computed
  const int64_t size = pp_.size(), peer = (pp_.rank() + (forward ? 1 : size - 1)) % size;
  run(pp_, stream,
      Send{.x = forward ? stage_.outgoing(a.slot) : stage_.incoming(a.slot),
           .peer = peer,
           .channel = forward ? Channel::forward : Channel::backward});
  (forward ? slot(a).sent : slot(a).sent_back) = stream.record();
}

}  // namespace trireme
