#include "train/step/pipeline.h"

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {
namespace {

bool is_forward(const Action& action) { return action.kind == ActionKind::forward; }
// True for the part of backward that receives and sends a gradient of the stream.
bool is_backward(const Action& action) { return action.kind == ActionKind::backward || action.kind == ActionKind::backward_input; }

}  // namespace

Pipeline::Pipeline(const Comm& pp, Device& device, const Stage& stage)
    : pp_(pp),
      device_(device),
      stage_(stage),
      shape_{.stages = pp.size(), .chunks = std::ssize(stage.shape().chunks), .turns = stage.shape().turns},
      sent_back_(static_cast<size_t>(stage.shape().room.slots)) {}

Seat Pipeline::seat(const Action& action) const {
  const bool halves = stage_.shape().halves;
  return {.chunk = action.chunk,
          .slot = action.slot,
          .loss_slot = action.microbatch % stage_.shape().loss_slots,
          .outgoing = is_forward(action) ? action.turn : stage_.outgoing_streams() + (halves ? action.slot : action.turn),
          .again = action.again};
}

// The rank with the piece before (-1) or after (1) that of an action, if it is another.
std::optional<Pipeline::Peer> Pipeline::peer(const Action& a, int64_t step) const {
  const int64_t piece = shape_.piece_of(pp_.rank(), a.chunk) + (is_forward(a) ? step : -step);
  if ((!is_forward(a) && !is_backward(a)) || piece < 0 || piece >= shape_.pieces()) return {};
  const int64_t rank = shape_.stage_of(piece);
  if (rank == pp_.rank()) return {};
  if (is_forward(a)) return Peer{rank, turned(a) ? Channel::turned_forward : Channel::forward};
  return Peer{rank, turned(a) ? Channel::turned_backward : Channel::backward};
}

std::optional<Pipeline::Peer> Pipeline::source(const Action& a) const { return peer(a, -1); }
std::optional<Pipeline::Peer> Pipeline::target(const Action& a) const { return peer(a, 1); }

// After action i of the last stage. A stream stays where it is until the next forward, which is the second chunk's. A gradient goes
// to the seat of the first chunk's backward, later in the schedule.
void Pipeline::leave_turned(size_t i) {
  const Action& a = (*actions_)[i];
  if (is_forward(a) && a.chunk == 0) turned_ = stage_.outgoing(seat(a));
  if (!is_backward(a) || a.chunk == 0) return;
  for (size_t later = i + 1; later < actions_->size(); ++later)
    if (const Action& b = (*actions_)[later]; is_backward(b) && b.chunk == 0 && b.microbatch == a.microbatch)
      return run(device_.compute(), Cast{.y = stage_.outgoing(seat(b)), .x = stage_.incoming(seat(a))});
}

void Pipeline::begin(const std::vector<Action>& actions) {
  actions_ = &actions;
  arrived_.assign(actions.size(), {});
  for (auto& way : posted_) way[0] = way[1] = 0;
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
void Pipeline::post(bool forward, bool turned, size_t i) {
  size_t& next = posted_[forward][turned];
  for (; next < actions_->size(); ++next) {
    const Action& a = (*actions_)[next];
    const std::optional<Peer> from = source(a);
    if (is_forward(a) != forward || this->turned(a) != turned || !from) continue;
    if (next > i + 1 || !free_for(next, i)) return;
    Stream& stream = pipe(forward ? forward_in : backward_in, turned);
    stream.wait(device_.compute().record());         // earlier work on the slot is computed
    if (forward) stream.wait(sent_back_[index(a)]);  // and sent
    run(pp_, stream,
        Receive{.x = forward ? stage_.incoming(seat(a)) : stage_.outgoing(seat(a)), .peer = from->rank, .channel = from->channel});
    arrived_[next] = stream.record();
  }
}

void Pipeline::before(size_t i) {
  if (pp_.size() == 1) return;
  for (const bool turned : {false, true})
    for (const bool forward : {true, false})
      if (!turned || shape_.turns) post(forward, turned, i);
  Stream& compute = device_.compute();
  const Action& a = (*actions_)[i];
  if (source(a)) compute.wait(arrived_[i]);
  if (is_forward(a)) {
    compute.wait(sent_[static_cast<size_t>(a.turn)]);  // the stream of the pass before last, which this one overwrites
    compute.wait(sent_back_[index(a)]);                // and the gradient of an earlier one
  }
  if (turns_here() && is_forward(a) && a.chunk == 1) run(compute, Cast{.y = stage_.incoming(seat(a)), .x = turned_});
}

void Pipeline::after(size_t i) {
  const Action& a = (*actions_)[i];
  if (pp_.size() == 1) return;
  if (turns_here()) leave_turned(i);
  const std::optional<Peer> to = target(a);
  if (!to) return;
  const bool forward = is_forward(a);
  Stream& stream = pipe(forward ? forward_out : backward_out, turned(a));
  stream.wait(device_.compute().record());  // the result is computed
  run(pp_, stream,
      Send{.x = forward ? stage_.outgoing(seat(a)) : stage_.incoming(seat(a)), .peer = to->rank, .channel = to->channel});
  (forward ? sent_[static_cast<size_t>(a.turn)] : sent_back_[index(a)]) = stream.record();
}

}  // namespace trireme
