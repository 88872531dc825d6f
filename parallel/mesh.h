// Mesh: which place of which axis this rank takes, and the groups of ranks along each axis.
//
// rank = ((dp * PP + pp) * CP + cp) * TP + tp: the parts of one tensor are neighbours, most likely on one node.
#pragma once

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

  // Of this process's GPU: collectives along every axis run on Place::cuda from here on. All ranks of the world call it. A host
  // that waits for the device longer than parallel.timeout, or whose connections break, throws. The mesh stays where it is.
  void connect_gpus(Device& device);

  // Waits along every axis are written into it from here on. It outlives the mesh.
  void keep(Journal& journal);
  // This rank has done or begun a part of its work: told to the journal, if one is kept.
  void mark_progress() const {
    if (journal_ != nullptr) journal_->mark_progress();
  }

  const Comm& dp() const { return dp_; }
  const Comm& pp() const { return pp_; }
  const Comm& tp() const { return tp_; }
  const Comm& all() const { return all_; }
  // The tp group in groups of `size` neighbours. All ranks call it.
  Comm neighbours(int64_t size) const;
  // This rank computes replica replica() of replicas(): its part of each batch.
  int64_t replica() const { return dp_.rank(); }
  int64_t replicas() const { return dp_.size(); }
  bool first() const { return all_.rank() == 0; }  // the rank that speaks for all
  std::string describe() const;                    // "rank 5 | dp 1 pp 0 tp 1"

 private:
  void check_gpus(double waited) const;

  Comm dp_, pp_, tp_, all_;
  Journal* journal_ = nullptr;
  double timeout_ = 0;
  bool launched_ = false;  // by a launcher: not imagined
  bool exact_ = false, on_gpus_ = false;
};

// The sizes of the axes for this many ranks. ConfigError when they do not multiply to it.
struct MeshSizes {
  int64_t dp, pp, cp, tp;
};
MeshSizes mesh_sizes(int64_t ranks, const ParallelConfig& config);

}  // namespace trireme
