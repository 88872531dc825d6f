#include "train/step/replica_sync.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {

ReplicaSync::ReplicaSync(const ParallelConfig& config, const Mesh& mesh, Device& device, const Stage& stage, Arenas& arenas)
    : config_(config),
      mesh_(mesh),
      replicas_(mesh.gradient_group()),
      owners_(mesh.owner_group()),
      device_(device),
      stage_(stage),
      divided_(owners_.size() > 1),
      bf16_to_owners_(config.reduce == ReduceDtype::bf16 && mesh.copies() == 1),
      copy_sum_(config, mesh, stage, arenas),
      arrived_(stage.units().size()),
      squares_(stage.units().size()) {
  if (device.place() == Place::cpu)
    for (const Comm* group : sharing_groups(config, mesh))
      shared_.push_back(std::make_unique<SharedMemory>(*group, arenas.gradients));
  if (device.place() != Place::cuda || replicas_.size() == 1) return;
  for (const Arena* arena : {&arenas.gradients, &arenas.weights}) {
    const Tensor all = arena->flat(Dtype::f32);
    for (const Comm* group : {&owners_, &mesh.copy_group()})
      if (group->size() > 1)
        known_.push_back(std::make_unique<KnownMemory>(group->gpus(), static_cast<std::byte*>(all.data()), all.bytes()));
  }
}

std::vector<const Comm*> ReplicaSync::sharing_groups(const ParallelConfig& config, const Mesh& mesh) {
  std::vector<const Comm*> groups;
  const bool whole = config.zero < 2 || config.reduce_when == ReduceWhen::step;
  const auto add = [&](const Comm& group, bool in_place) {
    if (in_place && group.size() > 1 && group.group() != 0 && config.shared_memory && !config.exact()) groups.push_back(&group);
  };
  add(mesh.owner_group(), whole);
  add(mesh.copy_group(), !config.compresses());
  return groups;
}

// Returns the lane for communication, ordered after the compute lane's work so far. A single replica
// has nothing to overlap and uses the compute lane.
Stream& ReplicaSync::lane() {
  if (replicas_.size() == 1) return device_.compute();
  Stream& comm = device_.comm();
  comm.wait(device_.compute().record());  // gradients are sent only after backward has written them, weights after the update
  return comm;
}

// Sums a unit's gradients over the replicas; with a divided state only this replica's part.
void ReplicaSync::send(size_t unit) {
  const Unit& u = stage_.units()[unit];
  if (u.gradients.size() == 0) return;
  Stream& stream = lane();
  if (divided_)
    run(owners_, stream,
        ReduceScatter{.part = u.gradients_part, .all = u.gradients, .bf16_on_wire = bf16_to_owners_, .squares = squares_[unit]});
  if (!local()) copy_sum_.sum(stream, unit);
}

// Adds the owners' sum to this replica's part, and after the last microbatch sums that over the copies;
// then clears the gradients. The event: they are 0.
Event ReplicaSync::add(size_t unit, bool last) {
  const Unit& u = stage_.units()[unit];
  Stream& stream = lane();
  run(owners_, stream,
      ReduceScatter{.part = u.gradients_part, .all = u.gradients, .accumulate = true, .bf16_on_wire = bf16_to_owners_});
  run(stream, Fill{.x = u.gradients});
  const Event cleared = stream.record();
  if (last && !local()) copy_sum_.sum(stream, unit);
  return cleared;
}

bool ReplicaSync::sums_once(size_t unit) const {
  const Unit& u = stage_.units()[unit];
  const bool copied = find(UnitKind::tied_copy) != kNone || tied_apart();
  return device_.place() == Place::cpu && divided_ && mesh_.copies() == 1 && !reduces_each() && !u.tree &&
         !(copied && (u.tied_copy() || u.id.kind == UnitKind::table));
}

int64_t ReplicaSync::sum_bytes() const {
  if (!reduces_each() || bf16_to_owners_ || config_.exact()) return 0;
  int64_t most = 0;
  for (const Unit& unit : stage_.units()) most = std::max(most, unit.gradients_part.bytes());
  return most;
}

void ReplicaSync::begin(int64_t step) { copy_sum_.set_apart(config_.apart_at(step)); }

void ReplicaSync::sum_copies(bool exactly) {
  for (size_t unit = 0; unit < stage_.units().size(); ++unit)
    if (!stage_.units()[unit].tied_copy()) copy_sum_.sum(lane(), unit, exactly);
  join();
}

Event ReplicaSync::add_to_tree(Tensor x, Tensor tree, int64_t microbatch) {
  Stream& stream = lane();
  run(replicas_, stream, TreeAddAll{.tree = tree, .all = x, .first = microbatch * replicas_.size()});
  run(stream, Fill{.x = x});
  return stream.record();
}

void ReplicaSync::total_of_tree(Tensor tree, int64_t microbatches) {
  run(lane(), TreeTotal{.tree = tree, .count = microbatches * replicas_.size()});
}

void ReplicaSync::sum(Tensor x) {
  if (replicas_.size() > 1) run(replicas_, lane(), AllReduce{.x = x});
}

Event ReplicaSync::gather(Tensor flat, Tensor part) {
  if (!divided_ || flat.size() == 0) return {};
  Stream& stream = lane();
  run(owners_, stream, AllGather{.all = flat, .part = part});
  return stream.record();
}

void ReplicaSync::join() {
  if (replicas_.size() > 1) device_.compute().wait(device_.comm().record());
}

void ReplicaSync::write(size_t unit) {
  if (reduces_each()) device_.compute().wait(memory(unit).cleared);
}

void ReplicaSync::read(size_t unit) {
  Stream& compute = device_.compute();
  if (stage_.units()[unit].held) return compute.wait(std::exchange(arrived_[unit], Event{}));  // once: the lane keeps its order
  ahead(unit);
  compute.wait(memory(unit).arrived);
}

// Gathers a unit's weights unless its memory holds them, which depends on the calls so far alone: all replicas gather in the
// same order.
void ReplicaSync::ahead(size_t unit) {
  if (memory(unit).weights != source(unit)) fetch(source(unit));
}

// The unit whose weights a unit reads: a tied copy beside its table has none of its own.
size_t ReplicaSync::source(size_t unit) const {
  return stage_.units()[unit].tied_copy() && !tied_apart() ? find(UnitKind::table) : unit;
}

// Gathers after the compute lane's work so far, which may still read that memory.
void ReplicaSync::fetch(size_t unit) {
  const Unit& u = stage_.units()[unit];
  memory(unit).weights = unit;
  memory(unit).arrived = gather(u.weights, u.weights_part);
}

void ReplicaSync::done(size_t unit, const Microbatch& batch) {
  const Unit& u = stage_.units()[unit];
  if (u.tree)
    memory(unit).cleared = add_to_tree(u.gradients, u.tree, batch.number);
  else if (reduces_each())
    memory(unit).cleared = add(unit, batch.last);
  else
    send(unit);
}

// True if a tied head is on another stage than its table.
bool ReplicaSync::tied_apart() const { return stage_.config().tied && mesh_.pp().size() > 1 && !config_.turns(); }

size_t ReplicaSync::find(UnitKind kind) const {
  for (size_t unit = 0; unit < stage_.units().size(); ++unit)
    if (stage_.units()[unit].id.kind == kind) return unit;
  return kNone;
}

void ReplicaSync::finish(int64_t microbatches) {
  for (const Unit& unit : stage_.units())
    if (unit.tree) total_of_tree(unit.tree, microbatches);
  const size_t table = find(UnitKind::table), tied_copy = find(UnitKind::tied_copy);
  const auto part = [&](size_t unit) { return stage_.units()[unit].gradients_part; };
  if (tied_copy != kNone && table != kNone) {
    run(lane(), Add{.y = part(table), .a = part(table), .b = part(tied_copy)});
  } else if (tied_copy != kNone) {
    run(mesh_.pp(), lane(), Send{.x = part(tied_copy), .peer = 0, .channel = Channel::tied});
  } else if (table != kNone && tied_apart()) {
    const int64_t last = mesh_.pp().size() - 1;
    run(mesh_.pp(), lane(), Receive{.x = part(table), .peer = last, .channel = Channel::tied, .accumulate = true});
  }
  join();
}

void ReplicaSync::spread() {
  const bool tied = tied_apart();
  const std::vector<Unit>& units = stage_.units();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const Unit& u = units[unit];
    if (u.tied_copy() && tied) {
      run(mesh_.pp(), lane(), Receive{.x = u.weights_part, .peer = 0, .channel = Channel::tied});
      arrived_[unit] = lane().record();
    }
    if (u.id.kind == UnitKind::table && tied) {
      const int64_t last = mesh_.pp().size() - 1;
      run(mesh_.pp(), lane(), Send{.x = u.weights_part, .peer = last, .channel = Channel::tied});
    }
    memory(unit).weights = kNone;
    if (u.held && !(u.tied_copy() && !tied)) {
      const Event whole = gather(u.weights, u.weights_part);
      if (divided_) arrived_[unit] = whole;
    }
  }
}

}  // namespace trireme
