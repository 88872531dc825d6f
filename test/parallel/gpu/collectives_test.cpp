// Every collective between GPUs: emulated ones in test_cuda_parallel, in test_gpu_parallel real ones, of which ranks may share one.
#include "parallel/collectives.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/graph.h"
#include "kernels/ops/fill.h"
#include "parallel/gpu_group.h"
#include "parallel/mesh.h"
#include "parallel/verdict.h"
#include "test/catch.h"
#include "test/parallel/launch.h"
#include "test/reference/compare.h"

using namespace trireme;
using test::mpirun;
using test::output_of;

namespace {

// Ranks that share a real GPU take turns of milliseconds, also within a collective.
constexpr bool kRealGpu = TRIREME_REAL_GPU;

HostTensor addend(Dtype dtype, int64_t rank, int64_t n) { return random_tensor(dtype, {n}, static_cast<uint64_t>(17 + rank)); }

// Reference in double.
Doubles sum_of(Dtype dtype, int64_t size, int64_t n) {
  Doubles sum(static_cast<size_t>(n), 0.0);
  for (int64_t r = 0; r < size; ++r) {
    const HostTensor theirs = addend(dtype, r, n);
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += theirs[i];
  }
  return sum;
}

// Reference with the order of the CPU's collectives: f32 sums in the order of a tree, addends as
// `wire`, rounded once.
float tree(int64_t begin, int64_t end, auto of) {
  if (end - begin == 1) return of(begin);
  const int64_t middle = begin + (end - begin) / 2;
  return tree(begin, middle, of) + tree(middle, end, of);
}
HostTensor tree_sum(Dtype dtype, int64_t size, int64_t n) {
  std::vector<HostTensor> all;
  for (int64_t r = 0; r < size; ++r) all.push_back(addend(dtype, r, n));
  HostTensor sum(dtype, {n});
  for (int64_t i = 0; i < n; ++i)
    sum.set(i, tree(0, size, [&](int64_t r) { return static_cast<float>(all[static_cast<size_t>(r)][i]); }));
  return sum;
}

Doubles slice(const Doubles& x, int64_t begin, int64_t end) { return {x.begin() + begin, x.begin() + end}; }

// Error relative to the addends' scale, 1, since sums may be small.
bool near_by(const HostTensor& got, const Doubles& wanted, double bound) {
  const Doubles x = got.values();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(x[i] - wanted[i]) <= bound * (1 + std::abs(wanted[i])))) return false;
  return x.size() == wanted.size();
}

// f32 addends sent as bf16 are each rounded by up to 2^-9.
double bound_of(Dtype dtype, bool bf16_on_wire) { return bf16_on_wire ? 0x1p-6 : 8 * rounding(dtype); }

void check_sums(const Comm& comm, Stream& stream, Dtype dtype, bool bf16_on_wire, int64_t n) {
  CAPTURE(n, comm.size(), comm.rank(), comm.ordered(), name_of(dtype), bf16_on_wire);
  const int64_t rank = comm.rank(), size = comm.size();
  const double bound = bound_of(dtype, bf16_on_wire);
  const bool exact = comm.ordered() && !bf16_on_wire;

  HostTensor x = addend(dtype, rank, n);
  run(comm, stream, AllReduce{.x = x, .bf16_on_wire = bf16_on_wire});
  stream.finish();
  CHECK(near_by(x, sum_of(dtype, size, n), bound));
  if (exact) CHECK(x == tree_sum(dtype, size, n));

  HostTensor all = addend(dtype, rank, n * size), part(dtype, {n}), more = random_tensor(dtype, {n}, 5);
  const Doubles sums = slice(sum_of(dtype, size, n * size), rank * n, rank * n + n), before = more.values();
  run(comm, stream, ReduceScatter{.part = part, .all = all, .bf16_on_wire = bf16_on_wire});
  if (size > 1) run(comm, stream, ReduceScatter{.part = more, .all = all, .accumulate = true, .bf16_on_wire = bf16_on_wire});
  run(comm, stream, ReduceScatter{.part = all.tensor().slice(rank * n, rank * n + n), .all = all, .bf16_on_wire = bf16_on_wire});
  stream.finish();
  CHECK(near_by(part, sums, bound));
  CHECK(slice(all.values(), rank * n, rank * n + n) == part.values());
  if (exact) CHECK(part.values() == slice(tree_sum(dtype, size, n * size).values(), rank * n, rank * n + n));
  Doubles wanted;
  for (size_t i = 0; i < before.size(); ++i) wanted.push_back(before[i] + sums[i]);
  if (size > 1) CHECK(near_by(more, wanted, 2 * bound));

  for (int64_t root = 0; root < size && !bf16_on_wire; ++root) {
    HostTensor mine = addend(dtype, rank, n), sum(dtype, {n});
    run(comm, stream, Reduce{.sum = rank == root ? sum.tensor() : Tensor{}, .x = mine, .root = root});
    run(comm, stream, Reduce{.sum = rank == root ? mine.tensor() : Tensor{}, .x = mine, .root = root});
    stream.finish();
    CHECK(mine == (rank == root ? sum : addend(dtype, rank, n)));
    if (rank == root) CHECK(near_by(sum, sum_of(dtype, size, n), bound));
    if (rank == root && exact) CHECK(sum == tree_sum(dtype, size, n));
  }

  HostTensor gathered(dtype, {n * size});
  run(comm, stream, AllGather{.all = gathered, .part = part});
  stream.finish();
  CHECK(near_by(gathered, sum_of(dtype, size, n * size), bound));

  HostTensor exchanged(dtype, {n * size});
  const HostTensor own = addend(dtype, rank, n * size);
  run(comm, stream, AllToAll{.to = exchanged, .from = own});
  stream.finish();
  for (int64_t r = 0; r < size; ++r)
    CHECK(slice(exchanged.values(), r * n, r * n + n) == slice(addend(dtype, r, n * size).values(), rank * n, rank * n + n));
}

void check_moves(const Comm& comm, Stream& stream, Dtype dtype, int64_t n) {
  CAPTURE(n, comm.size(), comm.rank(), name_of(dtype));
  HostTensor x = addend(dtype, comm.rank(), n), largest = addend(dtype, 0, n);
  for (int64_t r = 1; r < comm.size(); ++r) {
    const HostTensor theirs = addend(dtype, r, n);
    for (int64_t i = 0; i < n; ++i) largest.set(i, std::max(largest[i], theirs[i]));
  }
  run(comm, stream, AllReduce{.x = x, .kind = AllReduce::Kind::max});
  stream.finish();
  CHECK(x == largest);
  for (int64_t root = 0; root < comm.size(); ++root) {
    HostTensor told = addend(dtype, comm.rank(), n);
    run(comm, stream, Broadcast{.x = told, .root = root});
    stream.finish();
    CHECK(told == addend(dtype, root, n));
  }
}

// Around the ring in both directions at once, with receives on lanes of their own, posted before
// anything is sent; and from the last to the first, accumulating.
void check_messages(const Comm& pp, Device& device, int64_t n) {
  if (pp.size() == 1) return;
  const int64_t rank = pp.rank(), size = pp.size(), next = (rank + 1) % size, before = (rank + size - 1) % size;
  CAPTURE(n, size, rank);
  const HostTensor mine = addend(Dtype::f32, rank, n);
  HostTensor up(Dtype::f32, {n}), down(Dtype::f32, {n}), tied = mine;
  for (int round = 0; round < 3; ++round) {
    run(pp, device.pipe(0), Receive{.x = up, .peer = before, .channel = Channel::forward});
    run(pp, device.pipe(1), Receive{.x = down, .peer = next, .channel = Channel::backward});
    run(pp, device.pipe(2), Send{.x = mine, .peer = next, .channel = Channel::forward});
    run(pp, device.pipe(3), Send{.x = mine, .peer = before, .channel = Channel::backward});
  }
  if (rank == size - 1) run(pp, device.comm(), Send{.x = mine, .peer = 0, .channel = Channel::tied});
  if (rank == 0) run(pp, device.comm(), Receive{.x = tied, .peer = size - 1, .channel = Channel::tied, .accumulate = true});
  for (size_t pipe = 0; pipe < Device::kPipes; ++pipe) device.pipe(pipe).finish();
  device.comm().finish();
  CHECK(up == addend(Dtype::f32, before, n));
  CHECK(down == addend(Dtype::f32, next, n));
  if (rank == 0) {
    Doubles sum;
    const HostTensor last = addend(Dtype::f32, size - 1, n);
    for (int64_t i = 0; i < n; ++i) sum.push_back(static_cast<float>(mine[i] + last[i]));
    CHECK(tied.values() == sum);
  }
}

// A tree of addends has the bits of one rank, in parts or whole, in one copy or several.
void check_trees(const Comm& comm, Device& device, int64_t m) {
  const int64_t size = comm.size(), rank = comm.rank(), rounds = 5;
  for (int64_t parts = 1; parts <= size; ++parts) {
    if (size % parts != 0) continue;
    CAPTURE(m, size, rank, parts);
    const int64_t n = m * parts, first = rank % parts * m;
    HostTensor tree(Dtype::f32, {6, m}), alone(Dtype::f32, {6, m});
    for (int64_t round = 0; round < rounds; ++round) {
      const HostTensor mine = addend(Dtype::f32, round * size + rank, n);
      run(comm, device.comm(), TreeAddAll{.tree = tree, .all = mine, .first = round * size});
      device.comm().finish();
    }
    for (int64_t number = 0; number < rounds * size; ++number) {
      const HostTensor all = addend(Dtype::f32, number, n);
      run(Comm(), device.compute(), TreeAddAll{.tree = alone, .all = all.tensor().slice(first, first + m), .first = number});
      device.compute().finish();
    }
    for (HostTensor* t : {&tree, &alone}) run(device.compute(), TreeTotal{.tree = *t, .count = rounds * size});
    device.compute().finish();
    CHECK(slice(tree.values(), 0, m) == slice(alone.values(), 0, m));
  }
}

// NCCL assumes that ranks of different hosts have different GPUs. The ranks share one here: each
// claims to be a host of its own.
void pretend_hosts(const World& world) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(world.rank())).c_str(), 0);
  for (const auto& [name, value] :
       {std::pair("NCCL_SOCKET_IFNAME", "lo"), std::pair("NCCL_NET", "Socket"), std::pair("NCCL_IB_DISABLE", "1"),
        std::pair("NCCL_P2P_DISABLE", "1"), std::pair("NCCL_SHM_DISABLE", "1"), std::pair("NCCL_NVLS_ENABLE", "0"),
        std::pair("NCCL_MNNVL_ENABLE", "0"), std::pair("NCCL_MAX_CTAS", "2"), std::pair("NCCL_RAS_ENABLE", "0")})
    setenv(name, value, 0);
}

}  // namespace

TEST_CASE("collectives on the GPUs of a launcher's ranks", "[.launched]") {
  const World world;
  pretend_hosts(world);
  Device device(Place::cuda);
  for (const Numerics numerics : {Numerics::fast, Numerics::invariant}) {
    const ReduceDtype reduce = numerics == Numerics::fast ? ReduceDtype::bf16 : ReduceDtype::f32;
    Mesh replicas(world, {.numerics = numerics, .reduce = reduce}), stages(world, {.pp = world.size()});
    replicas.connect(device);
    stages.connect(device);
    for (Stream* stream : {&device.compute(), &device.comm()})
      for (const int64_t n : kRealGpu ? std::vector<int64_t>{3, 20011} : std::vector<int64_t>{1, 3, 1000, 20011}) {
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) check_sums(replicas.dp(), *stream, dtype, false, n);
        if (world.size() > 1) check_sums(replicas.dp(), *stream, Dtype::f32, true, n);
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) check_moves(replicas.dp(), *stream, dtype, n);
      }
    // Neighbours that a plan has asked for before.
    Mesh shards(world, {.tp = world.size(), .numerics = numerics});
    const Comm& neighbours = shards.neighbours(world.size());
    shards.connect(device);
    check_moves(neighbours, device.compute(), Dtype::f32, 3);
    for (const int64_t n : {1, 1001}) check_messages(stages.pp(), device, n);
    for (const int64_t m : {1, 513}) check_trees(replicas.dp(), device, m);
  }
}

TEST_CASE("collectives between GPUs move and sum what they say, on one to five ranks") {
  const bool sanitized = !std::string_view(TRIREME_SANITIZE).empty();  // each takes many times as long in that case
  for (const int ranks : sanitized ? std::vector{3} : kRealGpu ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5}) {
    const auto [out, status] = output_of(mpirun(ranks, "collectives on the GPUs*"));
    INFO(out);
    CHECK(status == 0);
    CHECK_THAT(out, ContainsSubstring("All tests passed"));
  }
}

// The first rank sums, the second never does. Ends at once: the lane still waits.
TEST_CASE("a sum to which a rank does not come", "[.launched]") {
  const World world;
  pretend_hosts(world);
  Device device(Place::cuda);
  Mesh mesh(world, {.timeout = 0.5});
  mesh.connect(device);
  if (world.rank() > 0) usleep(5000000), std::_Exit(0);
  HostTensor x(Dtype::f32, {4});
  run(mesh.dp(), device.compute(), AllReduce{.x = x});
  try {
    device.compute().finish();
  } catch (const Error& error) {
    std::puts(error.what());
  }
  std::fflush(nullptr);
  std::_Exit(0);
}

TEST_CASE("a host stops waiting for a GPU whose peers do not come after the given time") {
  const auto begin = std::chrono::steady_clock::now();
  const auto [out, status] = output_of(mpirun(2, "a sum to which*"));
  INFO(out);
  CHECK_THAT(out, ContainsSubstring("parallel.timeout = 0.5 s"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

// The GPUs of all ranks enter two sums, and one more by a graph four times; then only rank 1's host enqueues nothing. Ends at once,
// as above.
TEST_CASE("a sum that one rank leaves out", "[.launched]") {
  const World world;
  pretend_hosts(world);
  Device device(Place::cuda);
  Journal journal(world.rank());
  Mesh mesh(world, {.timeout = 1});
  journal.connect(world);
  mesh.keep(journal);
  mesh.connect(device);
  HostTensor x(Dtype::f32, {4});
  const auto sum = [&] { run(mesh.dp(), device.compute(), AllReduce{.x = x}); };
  sum(), sum();
  Graph graph(device);
  graph.record(sum);
  for (int i = 0; i < 3; ++i) graph.replay();
  device.compute().finish();
  if (world.rank() == 1) usleep(20000000), std::_Exit(0);
  sum();
  try {
    device.compute().finish();
  } catch (const Error&) {
    std::vector<RankReport> ranks = journal.look();
    std::puts(judge(ranks).line.c_str());
    for (RankReport& rank : ranks) rank.waits_for_gpu = true;
    ranks[1].on_gpu = ranks[0].on_gpu;
    std::puts(judge(ranks).line.c_str());
  }
  std::fflush(nullptr);
  std::_Exit(0);
}

TEST_CASE("a rank whose GPU has entered fewer collectives than the others' is named, also when they were replayed") {
  const auto [out, status] = output_of(mpirun(3, "a sum that one rank leaves out"));
  INFO(out);
  CHECK_THAT(out, ContainsSubstring("rank 1 on "));
  CHECK_THAT(out, ContainsSubstring("; ranks 0, 2 wait for it: their GPUs are in collective #7 along dp, its GPU has entered 6"));
  CHECK_THAT(out, ContainsSubstring("no rank is known to be at fault: all 3 wait for their GPUs") &&
                      ContainsSubstring("(7 along dp on rank 0)"));
}

// The driver refuses memory that is registered already.
TEST_CASE("ranks whose journals are kept from their GPUs", "[.launched]") {
  const World world;
  pretend_hosts(world);
  Device device(Place::cuda);
  Journal journal(world.rank());
  const GpuWindow before(journal.memory());
  CHECK(before.opened());
  Mesh mesh(world, ParallelConfig{});
  mesh.keep(journal);
  mesh.connect(device);
  HostTensor x(Dtype::f32, {4});
  run(mesh.dp(), device.compute(), AllReduce{.x = x});
  device.compute().finish();
  CHECK(mesh.dp().gpu_counter() == nullptr);
  CHECK(journal.look().front().on_gpu.empty());
}

TEST_CASE("a GPU that does not reach its rank's journal is not shown to have entered nothing") {
  const auto [out, status] = output_of(mpirun(2, "ranks whose journals*"));
  INFO(out);
  CHECK(status == 0);
  CHECK_THAT(out, ContainsSubstring("All tests passed"));
}

TEST_CASE("ranks that are not connected say so") {
  const Comm comm("dp", 1, 2);
  HostTensor x(Dtype::f32, {4});
  Device device(Place::cuda);
  CHECK_THROWS_WITH(run(comm, device.compute(), AllReduce{.x = x}), ContainsSubstring("along dp, but they are not connected"));
}
