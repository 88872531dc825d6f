// Mesh: which place of which axis this rank takes, and the groups of ranks along each axis.
//
// rank = ((dp * PP + pp) * CP + cp) * TP + tp: the parts of one tensor are neighbours, most likely on one node.
#pragma once

#include <array>
#include <string>

#include "kernels/device.h"
#include "parallel/comm.h"
#include "parallel/config.h"
#include "parallel/world.h"

namespace trireme {

class Mesh {
 public:
  Mesh() = default;  // of one rank
  // All ranks of the world call it. ConfigError when the axes do not multiply to the world's ranks, or two_level finds no nodes of
  // one size. parallel.dp = 0 takes what the other axes leave.
  Mesh(const World& world, const ParallelConfig& config);
  // Imagined: rank `rank` of `ranks`, whose groups only count.
  Mesh(int64_t rank, int64_t ranks, const ParallelConfig& config);

  // From here on collectives along every axis run on Place::cuda, too. Nothing happens on a CPU, or with one rank. All ranks of the
  // world call it. A host throws that waits for the device longer than parallel.timeout, or whose connections break. The mesh stays
  // where it is.
  void connect(Device& device);

  // Waits along every axis are written into it from here on. It outlives the mesh.
  void keep(Journal& journal);
  // This rank has done or begun a part of its work: told to the journal, if one is kept.
  void mark_progress() const {
    if (journal_ != nullptr) journal_->mark_progress();
  }

  // The group of this rank along each axis, from the outermost: copies of the model, stages of the pipeline, shards of tensors.
  const std::array<Comm, 3>& axes() const { return axes_; }
  const Comm& dp() const { return axes_[0]; }
  const Comm& pp() const { return axes_[1]; }
  const Comm& tp() const { return axes_[2]; }
  const Comm& all() const { return all_; }
  // The tp group in groups of `size` neighbours. All ranks call it.
  Comm neighbours(int64_t size) const;

  // By purpose. This rank computes replica replica() of replicas(): its part of each batch.
  int64_t replica() const { return dp().rank(); }
  int64_t replicas() const { return dp().size(); }
  // The ranks with the same weights and other samples: gradients, losses and counts add up over them.
  const Comm& gradient_group() const { return dp(); }
  // Of them, those that divide one copy of the optimizer's state among themselves (parallel.zero). One rank where each keeps all.
  const Comm& owner_group() const { return divides_state_ ? dp() : kAlone; }
  // Copies of the optimizer's state over all ranks, and whether this rank's is, or is a part of, the first.
  int64_t copies() const { return replicas() / owner_group().size(); }
  bool in_first_copy() const { return divides_state_ || replica() == 0; }
  // Along these, ranks hold different parts of the model's state: what is counted over all parameters adds up over them, in this
  // order.
  std::array<const Comm*, 3> state_groups() const { return {&owner_group(), &tp(), &pp()}; }
  // Along these, ranks have different losses of a batch. Those of a stage that has none are 0.
  std::array<const Comm*, 2> loss_groups() const { return {&gradient_group(), &pp()}; }

  bool first() const { return all_.rank() == 0; }  // the rank that speaks for all
  std::string describe() const;                    // "rank 5 | dp 1 pp 0 tp 1"

 private:
  void check_gpus(double waited) const;

  std::array<Comm, 3> axes_{Comm("dp", 0, 1), Comm("pp", 0, 1), Comm("tp", 0, 1)};
  Comm all_;
  Journal* journal_ = nullptr;
  double timeout_ = 0;
  bool launched_ = false;  // by a launcher: not imagined
  bool exact_ = false, on_gpus_ = false, divides_state_ = false;
};

// The sizes of the axes for this many ranks. ConfigError when they do not multiply to it.
struct MeshSizes {
  int64_t dp, pp, cp, tp;
};
MeshSizes mesh_sizes(int64_t ranks, const ParallelConfig& config);

}  // namespace trireme
