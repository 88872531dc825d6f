#include "train/step/unit_traffic.h"

#include <utility>

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {

UnitTraffic::UnitTraffic(const Mesh& mesh, Device& device, const Stage& stage, Buckets& buckets)
    : mesh_(mesh), device_(device), stage_(stage), buckets_(buckets), arrived_(stage.units().size()) {}

void UnitTraffic::write(size_t unit) {
  if (reduces_each()) device_.compute().wait(memory(unit).cleared);
}

void UnitTraffic::read(size_t unit) {
  Stream& compute = device_.compute();
  const auto before = std::exchange(last_read_, unit);
  if (stage_.shape().holding.weights) return compute.wait(arrived_[unit]);
  if (memory(unit).weights != unit) fetch(unit);
  compute.wait(memory(unit).arrived);
  // The next unit in the same direction comes while this one computes, unless it takes this one's place. Downwards, in backward,
  // the embedding's weights are not read.
  const std::vector<Unit>& units = stage_.units();
  const bool up = unit == 0 || unit > before;
  const size_t next = up ? unit + 1 : unit - 1;
  if (unit == before || next >= units.size() || (!up && units[next].id.kind != UnitKind::block)) return;
  if (units[next].memory != units[unit].memory && memory(next).weights != next) fetch(next);
}

// After what was handed to the compute lane so far: it may read what is there.
void UnitTraffic::fetch(size_t unit) {
  const Unit& u = stage_.units()[unit];
  memory(unit).weights = unit;
  memory(unit).arrived = buckets_.gather(u.weights, u.weights_part);
}

void UnitTraffic::done(size_t unit, int64_t microbatch) {
  const Unit& u = stage_.units()[unit];
  if (u.tree)
    memory(unit).cleared = buckets_.enter(u.gradients, u.tree, microbatch * mesh_.dp().size());
  else if (reduces_each())
    memory(unit).cleared = buckets_.add(u.gradients, u.gradients_part);
  else
    buckets_.send(u.gradients, u.gradients_part);
}

size_t UnitTraffic::find(UnitKind kind) const {
  for (size_t unit = 0; unit < stage_.units().size(); ++unit)
    if (stage_.units()[unit].id.kind == kind) return unit;
  return kNone;
}

void UnitTraffic::finish(int64_t microbatches) {
  for (const Unit& unit : stage_.units())
    if (unit.tree) buckets_.close(unit.tree, microbatches * mesh_.dp().size());
  const size_t table = find(UnitKind::table), tied_copy = find(UnitKind::tied_copy);
  const auto part = [&](size_t unit) { return stage_.units()[unit].gradients_part; };
  if (tied_copy != kNone && table != kNone) {
    run(buckets_.lane(), Add{.y = part(table), .a = part(table), .b = part(tied_copy)});
  } else if (tied_copy != kNone) {
    run(mesh_.pp(), buckets_.lane(), Send{.x = part(tied_copy), .peer = 0, .channel = Channel::tied});
  } else if (table != kNone && stage_.config().tied && mesh_.pp().size() > 1) {
    const int64_t last = mesh_.pp().size() - 1;
    run(mesh_.pp(), buckets_.lane(), Receive{.x = part(table), .peer = last, .channel = Channel::tied, .accumulate = true});
  }
  buckets_.finish();
}

void UnitTraffic::spread() {
  const bool tied = stage_.config().tied && mesh_.pp().size() > 1;
  const std::vector<Unit>& units = stage_.units();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const Unit& u = units[unit];
    if (u.tied_copy() && tied) {
      run(mesh_.pp(), buckets_.lane(), Receive{.x = u.weights_part, .peer = 0, .channel = Channel::tied});
      arrived_[unit] = buckets_.lane().record();
    }
    if (u.id.kind == UnitKind::table && tied) {
      const int64_t last = mesh_.pp().size() - 1;
      run(mesh_.pp(), buckets_.lane(), Send{.x = u.weights_part, .peer = last, .channel = Channel::tied});
    }
    memory(unit).weights = kNone;
    if (stage_.shape().holding.weights && !(u.tied_copy() && !tied)) {
      const Event whole = buckets_.gather(u.weights, u.weights_part);
      if (buckets_.parts() > 1) arrived_[unit] = whole;
    }
  }
}

}  // namespace trireme
