// Mesh: this rank's position on each axis, and the groups of ranks along each axis.
//
// rank = ((dp * PP + pp) * CP + cp) * TP + tp: the shards of one tensor are neighbours, usually on
// one node. With parallel.shard, dp = dp_out * SHARD + dp_in: replicas that divide one copy of the
// state are neighbours, too.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "parallel/comm.h"
#include "parallel/config.h"
#include "parallel/world.h"

namespace trireme {

class GpuWindow;

class Mesh {
 public:
  Mesh() = default;  // one rank
  // Builds the mesh of a launched world. All ranks of the world call it. ConfigError if the axes do
  // not multiply to the number of ranks, or if two_level finds nodes of unequal size. parallel.dp =
  // 0 takes the rest of the ranks.
  Mesh(const World& world, const ParallelConfig& config);
  // Imagines rank `rank` of `ranks`, with groups that only count.
  Mesh(int64_t rank, int64_t ranks, const ParallelConfig& config);

  // Enables collectives on Place::cuda along every axis. Does nothing on a CPU or with one rank.
  // All ranks of the world call it. A host throws if it waits for the device longer than
  // parallel.timeout, or if its connections break. The mesh must not move afterwards.
  void connect(Device& device);

  // Records waits along every axis from now on. The journal must outlive the mesh.
  void keep(Journal& journal);
  // Records progress of this rank in the journal, if there is one.
  void mark_progress() const {
    if (journal_ != nullptr) journal_->mark_progress();
  }

  // This rank's group along each axis, from the outermost: replicas, pipeline stages, shards of
  // tensors.
  const std::array<Comm, 3>& axes() const { return axes_; }
  const Comm& dp() const { return axes_[0]; }
  const Comm& pp() const { return axes_[1]; }
  const Comm& tp() const { return axes_[2]; }
  const Comm& all() const { return all_; }
  // Divides the tp group into groups of `size` neighbours. All ranks call it. The mesh keeps the group.
  const Comm& neighbours(int64_t size) const;

  // Groups by purpose. This rank computes replica replica() of replicas(): its part of each batch.
  int64_t replica() const { return dp().rank(); }
  int64_t replicas() const { return dp().size(); }
  // The ranks with the same weights and other samples: gradients, losses and counts are summed over
  // them.
  const Comm& gradient_group() const { return dp(); }
  // The subset, of neighbours, that divides one copy of the optimizer's state (parallel.zero and
  // parallel.shard); one rank if each holds a whole copy.
  const Comm& owner_group() const { return owners_ == 1 ? kAlone : owners_ == dp().size() ? dp() : dp_in_; }
  // The ranks that hold this rank's part of the state, each of another copy; one rank if there is
  // one copy.
  const Comm& copy_group() const { return owners_ == 1 ? dp() : owners_ == dp().size() ? kAlone : dp_out_; }
  // Copies of the optimizer's state over all ranks; in_first_copy() is true if this rank holds all or
  // part of the first.
  int64_t copies() const { return copy_group().size(); }
  bool in_first_copy() const { return copy_group().rank() == 0; }
  // Axes along which ranks hold different parts of the model's state. A count over all parameters
  // is summed along them, in this order.
  std::array<const Comm*, 3> state_groups() const { return {&owner_group(), &tp(), &pp()}; }
  // Axes along which ranks hold different losses of a batch. Stages without a loss contribute 0.
  std::array<const Comm*, 2> loss_groups() const { return {&gradient_group(), &pp()}; }

  // Other ranks that this one exchanges messages with, at most.
  int64_t most_peers(bool on_gpus) const;

  bool first() const { return all_.rank() == 0; }  // the rank that reports for all
  std::string describe() const;                    // "rank 5 | dp 1 pp 0 tp 1"

 private:
  // All groups but all() and neighbours().
  static auto groups_of(auto& mesh) {
    return std::array{&mesh.axes_[0], &mesh.axes_[1], &mesh.axes_[2], &mesh.dp_in_, &mesh.dp_out_};
  }
  void check_gpus(double waited) const;
  void keep_uses(const ParallelConfig& config);
  GpuUse gpu_use(const Comm& group) const;
  void count_on_gpu(Comm& group) const;

  struct Closer {
    void operator()(GpuWindow* window) const;
  };
  std::unique_ptr<GpuWindow, Closer> window_;  // to the journal; before the groups, whose work uses it
  std::array<Comm, 3> axes_{Comm("dp", 0, 1), Comm("pp", 0, 1), Comm("tp", 0, 1)};
  Comm dp_in_, dp_out_;  // if the dp axis has several copies of the state, each divided: within one, and across them
  Comm all_;
  Journal* journal_ = nullptr;
  double timeout_ = 0;
  int64_t owners_ = 1;             // replicas that divide one copy of the state
  bool launched_ = false;          // by a launcher, not imagined
  mutable std::list<Comm> parts_;  // of neighbours()
  bool exact_ = false, on_gpus_ = false;
  bool narrow_sums_ = false, compresses_ = false;  // gradients travel as bf16, or in codes between copies
  bool turns_ = false;                             // the model's pieces turn: see schedule.h
};

// Sizes of the axes for this many ranks. ConfigError if they do not multiply to it.
struct MeshSizes {
  int64_t dp, pp, cp, tp;
};
MeshSizes mesh_sizes(int64_t ranks, const ParallelConfig& config);

}  // namespace trireme
