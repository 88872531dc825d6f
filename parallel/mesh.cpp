#include "parallel/mesh.h"

#include <algorithm>

#include "parallel/gpu_group.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

constexpr int64_t kPlannedNode = 8;  // ranks of an imagined node

// Ranks of each node, as placed by the launcher.
int64_t ranks_of_node(const World& world, const Comm& all) {
  const int64_t most = largest(all, world.local_size());
  const bool else_placed = world.local_size() != most || world.local_rank() != world.rank() % most;
  if (largest(all, else_placed ? 1 : 0) > 0)
    throw ConfigError(
        "parallel.two_level=true: nodes must have the same number of ranks, and neighbours in rank on one node: "
        "start with mpirun --map-by slot or srun --distribution=block, or set parallel.two_level to false");
  return most;
}

// Replicas that share a node of so many ranks, if each replica is `replica` neighbouring ranks.
int64_t replicas_on_node(int64_t node_ranks, int64_t replica, int64_t replicas) {
  const int64_t locals = node_ranks % replica == 0 ? node_ranks / replica : 1;
  return replicas % locals == 0 ? locals : 1;
}

}  // namespace

MeshSizes mesh_sizes(int64_t ranks, const ParallelConfig& config) {
  MeshSizes sizes{.dp = config.dp, .pp = config.pp, .cp = config.cp, .tp = config.tp};
  const int64_t others = sizes.pp * sizes.cp * sizes.tp;
  if (sizes.dp == 0) sizes.dp = ranks / others;
  if (sizes.dp * others == ranks && sizes.dp > 0) {
    if (config.shard > 0 && sizes.dp % config.shard != 0)
      throw ConfigError(text("parallel.shard ", config.shard, " does not divide the ", sizes.dp,
                             sizes.dp == 1 ? " replica" : " replicas", " of this start: use a divisor, or 0 for all replicas"));
    return sizes;
  }
  const std::string have = text("this start has ", ranks, ranks == 1 ? " rank" : " ranks");
  const std::string product = text("parallel.pp ", config.pp, " x parallel.cp ", config.cp, " x parallel.tp ", config.tp);
  if (config.dp == 0)
    throw ConfigError(text(product, " = ", others, " ranks for each replica, but ", have, ": start a multiple of ", others,
                           " ranks, or lower these sizes"));
  throw ConfigError(text("parallel.dp ", config.dp, " x ", product, " = ", config.dp * others, " ranks, but ", have, ": start ",
                         config.dp * others, " ranks, or omit parallel.dp to use all of them"));
}

namespace {

// Position of `rank` along an axis. Neighbours along the axis are `stride` ranks apart.
struct Standing {
  int64_t place, size, stride;
  int64_t group(int64_t rank) const { return rank - place * stride; }  // the first rank of its group along the axis
};

// Positions along dp, pp and tp.
std::array<Standing, 3> places_of(int64_t rank, const MeshSizes& n) {
  const auto at = [rank](int64_t size, int64_t stride) { return Standing{rank / stride % size, size, stride}; };
  return {at(n.dp, n.pp * n.cp * n.tp), at(n.pp, n.cp * n.tp), at(n.tp, 1)};
}

// Positions within a copy of the state, and across the copies, if `owners` replicas divide one.
std::array<Standing, 2> places_in(const Standing& dp, int64_t owners) {
  return {Standing{dp.place % owners, owners, dp.stride}, Standing{dp.place / owners, dp.size / owners, dp.stride * owners}};
}

int64_t owners_of(const ParallelConfig& config, int64_t replicas) {
  if (config.zero == 0) return 1;
  return config.shard == 0 ? replicas : config.shard;
}

constexpr std::array kAxes{"dp", "pp", "tp"};
constexpr std::array kPartsOfDp{"dp_in", "dp_out"};

}  // namespace

Mesh::Mesh(const World& world, const ParallelConfig& config) : timeout_(config.timeout), launched_(world.launched()) {
  keep_uses(config);
  const int64_t rank = world.rank();
  const std::array<Standing, 3> places = places_of(rank, mesh_sizes(world.size(), config));
  const auto group = [&](const char* name, int64_t color, int64_t size) {
    return size > 1 ? Comm(name, color, rank, world.launched()) : Comm(name, 0, 1);
  };
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    axes_[axis] = group(kAxes[axis], places[axis].group(rank), places[axis].size);
    require(axes_[axis].rank() == places[axis].place, text("rank ", rank, " in the wrong group of ", kAxes[axis]));
  }
  all_ = group("all", 0, world.size());
  owners_ = owners_of(config, places[0].size);
  if (owners_ > 1 && owners_ < places[0].size) {
    const auto [in, out] = places_in(places[0], owners_);
    dp_in_ = group(kPartsOfDp[0], in.group(rank), in.size), dp_out_ = group(kPartsOfDp[1], out.group(rank), out.size);
  }
  if (!config.two_level) return;
  const int64_t node = config.node_ranks > 0 ? config.node_ranks : ranks_of_node(world, all_);
  axes_[0].in_nodes(replicas_on_node(node, places[0].stride, places[0].size));
}

Mesh::Mesh(int64_t rank, int64_t ranks, const ParallelConfig& config) {
  keep_uses(config);
  const std::array<Standing, 3> places = places_of(rank, mesh_sizes(ranks, config));
  for (size_t axis = 0; axis < axes_.size(); ++axis) axes_[axis] = Comm(kAxes[axis], places[axis].place, places[axis].size);
  all_ = Comm("all", rank, ranks);
  owners_ = owners_of(config, places[0].size);
  if (owners_ > 1 && owners_ < places[0].size) {
    const auto [in, out] = places_in(places[0], owners_);
    dp_in_ = Comm(kPartsOfDp[0], in.place, in.size), dp_out_ = Comm(kPartsOfDp[1], out.place, out.size);
  }
  if (!config.two_level) return;
  const int64_t node = config.node_ranks > 0 ? config.node_ranks : kPlannedNode;
  axes_[0].in_nodes(replicas_on_node(node, places[0].stride, places[0].size));
}

// Remembers what the use of the groups depends on.
void Mesh::keep_uses(const ParallelConfig& config) {
  exact_ = config.exact(), turns_ = config.turns();
  narrow_sums_ = config.reduce == ReduceDtype::bf16;
  compresses_ = config.compress == Compress::bf16 || config.compress == Compress::int8;
}

const Comm& Mesh::neighbours(int64_t size) const {
  if (size <= 1) return kAlone;
  const auto known = std::ranges::find(parts_, size, &Comm::size);
  if (known != parts_.end()) return *known;
  const int64_t rank = all_.rank();
  if (!launched_) return parts_.emplace_back("tp part", rank % size, size);
  Comm& group = parts_.emplace_back("tp part", rank / size, rank, true);
  if (on_gpus_) group.connect_gpus({.ordered = exact_});
  if (journal_ != nullptr) group.keep(*journal_);
  count_on_gpu(group);
  return group;
}

void Mesh::keep(Journal& journal) {
  journal_ = &journal;
  for (Comm* group : groups_of(*this)) group->keep(journal);
  all_.keep(journal);
}

// Enqueued work cannot be cancelled: a rank that waits for it ends, and with it all ranks.
void Mesh::check_gpus(double waited) const {
  if (journal_ != nullptr) journal_->gpu_waited();
  for (const Comm* group : groups_of(*this))
    if (group->size() > 1) group->gpus().check();
  for (const Comm& part : parts_)
    if (part.size() > 1) part.gpus().check();
  if (timeout_ > 0 && waited > timeout_)
    throw Error(text("this rank's GPU has not finished a step within parallel.timeout = ", timeout_,
                     " s: another rank is gone or stuck; if steps take longer, raise parallel.timeout"));
}

// On CPUs each rank of a group reaches each other one. On GPUs NCCL joins a group by rings and two trees of ranks with three
// neighbours, unless its addends are exchanged.
int64_t Mesh::most_peers(bool on_gpus) const {
  constexpr int64_t kRingAndTrees = 2 + 2 * 3;
  int64_t peers = 0;
  if (!on_gpus) {
    for (const Comm& axis : axes_) peers += axis.size() - 1;
    return peers;
  }
  for (const Comm* group : groups_of(*this)) {
    const GpuUse use = gpu_use(*group);
    peers += use.ordered || use.exchanges ? group->size() - 1 : std::min(group->size() - 1, kRingAndTrees);
  }
  return peers;
}

GpuUse Mesh::gpu_use(const Comm& group) const {
  const bool copies = &group == (dp_out_.size() == 1 ? &axes_[0] : &dp_out_), along_pipeline = &group == &axes_[1];
  return {.ring = along_pipeline,  // messages go to neighbours
          .turns = along_pipeline && turns_,
          .ordered = exact_,
          .exchanges = copies && (narrow_sums_ || compresses_)};
}

void Mesh::connect(Device& device) {
  if (device.place() != Place::cuda || all_.size() == 1) return;
  device.guard_waits(
      {.ask = [](const void* mesh, double waited) { static_cast<const Mesh*>(mesh)->check_gpus(waited); }, .about = this});
  on_gpus_ = true;
  if (const auto allocator = known_memory_allocator()) device.allocate_by(*allocator);
  for (Comm* group : groups_of(*this)) group->connect_gpus(gpu_use(*group));
  if (journal_ != nullptr) window_.reset(std::make_unique<GpuWindow>(journal_->memory()).release());
  for (Comm* group : groups_of(*this)) count_on_gpu(*group);
  for (Comm& part : parts_) part.connect_gpus({.ordered = exact_}), count_on_gpu(part);  // those that a plan has asked for
}

void Mesh::Closer::operator()(GpuWindow* window) const { delete window; }

void Mesh::count_on_gpu(Comm& group) const {
  if (window_ != nullptr && window_->opened() && group.size() > 1)  // the journal shows as counted what has a counter
    group.count_on_gpu(window_->at(journal_->gpu_counter(group.axis().c_str(), group.ranks())));
}

std::string Mesh::describe() const {
  std::string words = text("rank ", all_.rank(), " |");
  for (const Comm& axis : axes_) words += text(" ", axis.axis(), " ", axis.rank());
  return words;
}

}  // namespace trireme
