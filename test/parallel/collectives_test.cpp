// Every collective on real ranks, of sizes that divide and that do not, in both dtypes; sums to the bit as the tree says.
#include "parallel/collectives.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gradient_norm.h"
#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "parallel/offered_memory.h"
#include "parallel/shared_memory.h"
#include "test/catch.h"
#include "test/parallel/launch.h"
#include "test/reference/place.h"
#include "test/sanitized.h"

using namespace trireme;
using test::mpirun;
using test::output_of;

namespace {

std::atomic<int64_t> bytes_sent = 0;

}  // namespace

// Counts the bytes that MPI sends. Its handles are passed on as they are.
extern "C" int PMPI_Isend(const void* data, int count, void* type, int to, int tag, void* comm, void* request);
extern "C" int MPI_Isend(const void* data, int count, void* type, int to, int tag, void* comm, void* request) {
  bytes_sent += count;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace {

// A value that depends on rank and place, without symmetry, and inexact in sums.
float value(int64_t rank, int64_t i) {
  static const float scale[] = {1, 3, 9, 27, 81, 243, 729, 2187};
  const auto dice = static_cast<int32_t>(static_cast<uint32_t>(i + 1) * 2654435761u);
  return static_cast<float>(dice) / 1e9f * scale[rank];
}

template <class T>
std::vector<T> values(int64_t rank, int64_t n) {
  std::vector<T> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<T>(value(rank, i)));
  return x;
}

template <class T>
Tensor tensor(std::vector<T>& x) {
  return Tensor(x.data(), kDtype<T>, Place::cpu, {static_cast<int64_t>(x.size())});
}

// The sum of addend(begin) to addend(end - 1): the first half's plus the second half's.
float tree(int64_t begin, int64_t end, auto addend) {
  if (end - begin == 1) return addend(begin);
  const int64_t middle = begin + (end - begin) / 2;
  return tree(begin, middle, addend) + tree(middle, end, addend);
}

template <class T>
float rounded(float x) {
  return static_cast<float>(static_cast<T>(x));
}

// Sum of a group, divided into nodes or not, if addends are sent as Wire.
template <class T, class Wire>
std::vector<T> sums(const Comm& comm, int64_t n) {
  const int64_t locals = comm.locals(), nodes = comm.size() / locals;
  std::vector<T> x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(static_cast<T>(tree(0, nodes, [&](int64_t node) {
      return rounded<Wire>(
          tree(node * locals, (node + 1) * locals, [&](int64_t rank) { return rounded<Wire>(rounded<T>(value(rank, i))); }));
    })));
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T, class Wire>
void check_all(const Comm& comm, Stream& stream, int64_t n) {
  CAPTURE(n, comm.size(), comm.locals(), name_of(kDtype<T>), name_of(kDtype<Wire>));
  const bool bf16_on_wire = bytes_of(kDtype<Wire>) < bytes_of(kDtype<T>);
  const int64_t rank = comm.rank(), size = comm.size();
  const auto done = [&] {
    if (stream.lane() != nullptr) stream.lane()->wait(stream.record().ticket);
  };

  std::vector<T> x = values<T>(rank, n);
  run(comm, stream, AllReduce{.x = tensor(x), .bf16_on_wire = bf16_on_wire});
  done();
  CHECK(same_bits(x, sums<T, Wire>(comm, n)));

  x = values<T>(rank, n);
  run(comm, stream, AllReduce{.x = tensor(x), .kind = AllReduce::Kind::max});
  done();
  std::vector<T> largest = values<T>(0, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 1; r < size; ++r) {
      const T theirs = static_cast<T>(value(r, i));
      T& most = largest[static_cast<size_t>(i)];
      if (static_cast<float>(theirs) > static_cast<float>(most)) most = theirs;
    }
  CHECK(same_bits(x, largest));

  std::vector<T> all = values<T>(rank, n * size), part(static_cast<size_t>(n));
  run(comm, stream, ReduceScatter{.part = tensor(part), .all = tensor(all), .bf16_on_wire = bf16_on_wire});
  run(comm, stream,
      ReduceScatter{.part = tensor(all).slice(rank * n, rank * n + n), .all = tensor(all), .bf16_on_wire = bf16_on_wire});
  done();
  const std::vector<T> summed = sums<T, Wire>(comm, n * size);
  const std::vector<T> mine(summed.begin() + rank * n, summed.begin() + rank * n + n);
  CHECK(same_bits(part, mine));
  CHECK(std::memcmp(all.data() + rank * n, mine.data(), mine.size() * sizeof(T)) == 0);

  std::vector<T> gathered(static_cast<size_t>(n * size));
  run(comm, stream, AllGather{.all = tensor(gathered), .part = tensor(part)});
  done();
  CHECK(same_bits(gathered, summed));

  std::vector<T> exchanged(static_cast<size_t>(n * size));
  all = values<T>(rank, n * size);
  run(comm, stream, AllToAll{.to = tensor(exchanged), .from = tensor(all)});
  done();
  for (int64_t r = 0; r < size; ++r) {
    const std::vector<T> theirs = values<T>(r, n * size);
    CHECK(std::memcmp(exchanged.data() + r * n, theirs.data() + rank * n, static_cast<size_t>(n) * sizeof(T)) == 0);
  }

  for (int64_t root = 0; root < size; ++root) {
    x = values<T>(rank, n);
    run(comm, stream, Broadcast{.x = tensor(x), .root = root});
    done();
    CHECK(same_bits(x, values<T>(root, n)));
    if (comm.locals() > 1) continue;
    x = values<T>(rank, n), all = x;
    run(comm, stream, Reduce{.sum = rank == root ? tensor(all) : Tensor{}, .x = tensor(x), .root = root});
    run(comm, stream, Reduce{.sum = rank == root ? tensor(x) : Tensor{}, .x = tensor(x), .root = root});
    done();
    CHECK(same_bits(x, rank == root ? sums<T, T>(comm, n) : values<T>(rank, n)));
    CHECK(same_bits(all, x));
  }

  // Sends to the next rank in a chain.
  x = values<T>(rank, n);
  if (rank + 1 < size) run(comm, stream, Send{.x = tensor(x), .peer = rank + 1, .channel = Channel::forward});
  if (rank > 0) run(comm, stream, Receive{.x = tensor(x), .peer = rank - 1, .channel = Channel::forward});
  done();
  CHECK(same_bits(x, values<T>(std::max<int64_t>(rank - 1, 0), n)));
}

// Takes a tensor of shared memory with these values.
template <class T>
Tensor take(Arena& arena, const std::vector<T>& x) {
  const Tensor taken = arena.take(kDtype<T>, {static_cast<int64_t>(x.size())});
  std::memcpy(taken.data(), x.data(), x.size() * sizeof(T));
  return taken;
}

template <class T>
std::vector<T> contents(const Tensor& x) {
  return std::vector<T>(x.as<T>(), x.as<T>() + x.size());
}

// Sums and gathers twice in an arena's memory, shared or not.
template <class T, class Wire>
void check_in(Arena& arena, const Comm& comm, Stream& stream, int64_t n) {
  CAPTURE(n, comm.size(), comm.locals(), name_of(kDtype<T>), name_of(kDtype<Wire>));
  const bool bf16_on_wire = bytes_of(kDtype<Wire>) < bytes_of(kDtype<T>);
  const int64_t rank = comm.rank(), size = comm.size();
  const Frame frame(arena);
  const std::vector<T> mine = values<T>(rank, n), more = values<T>(rank, n * size);
  const Tensor x = take(arena, mine), most = take(arena, mine), all = take(arena, more), in_place = take(arena, more);
  const Tensor whole = take(arena, std::vector<T>(more.size())), part = take(arena, mine);
  for (int round = 0; round < 2; ++round) {
    std::memcpy(x.data(), mine.data(), mine.size() * sizeof(T));
    run(comm, stream, AllReduce{.x = x, .bf16_on_wire = bf16_on_wire});
    run(comm, stream, AllReduce{.x = most, .kind = AllReduce::Kind::max});
    run(comm, stream, ReduceScatter{.part = part, .all = all, .bf16_on_wire = bf16_on_wire});
    std::memcpy(in_place.data(), more.data(), more.size() * sizeof(T));
    const Tensor share = in_place.slice(rank * n, rank * n + n);
    run(comm, stream, ReduceScatter{.part = share, .all = in_place, .bf16_on_wire = bf16_on_wire});
    run(comm, stream, AllGather{.all = whole, .part = part});
    run(comm, stream, AllGather{.all = in_place, .part = share});
    const std::vector<T> summed = sums<T, Wire>(comm, n * size);
    CHECK(same_bits(contents<T>(x), sums<T, Wire>(comm, n)));
    CHECK(same_bits(contents<T>(all), more));
    CHECK(same_bits(contents<T>(whole), summed));
    CHECK(same_bits(contents<T>(in_place), summed));
    for (int64_t i = 0; i < n; ++i) {
      float largest = value(0, i);
      for (int64_t r = 1; r < size; ++r) largest = std::max(largest, value(r, i));
      if (static_cast<float>(most.as<T>()[i]) != rounded<T>(largest)) FAIL("maximum of element " << i);
    }
  }
  run(comm, stream, ReduceScatter{.part = part, .all = all, .accumulate = true, .bf16_on_wire = bf16_on_wire});
  const std::vector<T> once = sums<T, Wire>(comm, n * size);
  for (int64_t i = 0; i < n; ++i) {
    const auto sum = static_cast<float>(once[static_cast<size_t>(rank * n + i)]);
    if (kDtype<T> == Dtype::f32 && static_cast<float>(part.as<T>()[i]) != sum + sum) FAIL("accumulated element " << i);
  }
}

// Changes tensors at once after each collective: others must have read them by then.
void check_order(Arena& arena, const Comm& comm, Stream& stream, bool shared) {
  constexpr int64_t n = 70001;
  const int64_t rank = comm.rank(), size = comm.size(), before = bytes_sent;
  const Frame frame(arena);
  const Tensor x = arena.take(Dtype::f32, {n}), whole = arena.take(Dtype::f32, {n * size}), part = arena.take(Dtype::f32, {n});
  const auto same = [](const Tensor& t, float value) {
    const float* all = t.as<float>();
    return std::all_of(all, all + t.size(), [&](float y) { return y == value; });
  };
  for (int round = 0; round < (kSanitized ? 10 : 100); ++round) {
    const auto mine = static_cast<float>(round + rank), total = static_cast<float>(size * round + size * (size - 1) / 2);
    run(stream, Fill{.x = x, .value = mine});
    run(comm, stream, AllReduce{.x = x});
    if (!same(x, total)) FAIL("sum of round " << round);
    run(stream, Fill{.x = x, .value = -1});
    run(stream, Fill{.x = part, .value = mine});
    run(comm, stream, AllGather{.all = whole, .part = part});
    for (int64_t r = 0; r < size; ++r)
      if (!same(whole.slice(r * n, r * n + n), static_cast<float>(round + r))) FAIL("share of rank " << r << " in round " << round);
    run(stream, Fill{.x = whole, .value = mine});
    run(comm, stream, ReduceScatter{.part = part, .all = whole});
    if (!same(part, total)) FAIL("part of round " << round);
    run(stream, Fill{.x = whole, .value = -1});
  }
  CHECK((bytes_sent == before) == (shared && comm.locals() == 1));
}

// Squares summed beside a sum in place are those of another pass, and are known once.
void check_squares(Arena& arena, const Comm& comm, Stream& stream, bool in_place) {
  constexpr int64_t n = 70001, kFirst = 5, kMiddle = 40000, kSecond = 40003;
  const Frame frame(arena);
  const Tensor all = take(arena, values<float>(comm.rank(), n * comm.size())), part = arena.take(Dtype::f32, {n});
  const std::vector<Tensor> ranges{part.slice(kFirst, kMiddle), part.slice(kSecond, n - 1)};
  std::vector<BlockSquares> squares;
  for (const Tensor& range : ranges) squares.emplace_back(range);
  const auto total_with = [&](std::span<BlockSquares> known) {
    std::array<float, SquaredSum::kSize> sums{};
    const Tensor total(sums.data(), Dtype::f32, Place::cpu, {SquaredSum::kSize});
    run(stream, SquaredNorm{.total = total, .xs = ranges, .known = known});
    return sums;
  };
  for (const float factor : {1.0f, 3.0f}) {
    run(comm, stream, ReduceScatter{.part = part, .all = all, .squares = squares});
    const std::array<float, SquaredSum::kSize> passed = total_with({});
    CHECK(passed[0] > 0);
    CHECK(total_with(squares) == passed);
    run(stream, Fill{.x = part, .value = factor});
    CHECK(total_with(squares) == total_with({}));
    run(comm, stream, ReduceScatter{.part = part, .all = all, .squares = squares});
    part.as<float>()[kFirst] = 1000;
    CHECK((total_with(squares) == passed) == in_place);
  }
}

}  // namespace

TEST_CASE("ranks of a launcher share memory", "[.launched]") {
  const World world;
  const Mesh mesh(world, ParallelConfig{}), pairs(world, {.two_level = true, .node_ranks = 2});
  Device device(Place::cpu);
  for (const bool all_able : {true, false}) {
    // The last rank's memory may not be of the kind that others can open: then no rank shares any.
    const bool able = all_able || world.rank() + 1 < world.size();
    Arena arena(device, 16 << 20, "a test", able ? Memory::shared : Memory::own);
    CHECK((arena.buffer().file() >= 0) == able);
    for (const Mesh* in : {&mesh, &pairs}) {
      const Comm& comm = in->dp();
      CHECK(lie_together(comm));
      {
        const SharedMemory shared(comm, arena);
        const std::byte* const begin = arena.buffer().data();
        CHECK(*begin == std::byte{});
        const auto [first, count] = near_ranks(comm);
        CHECK(count == (comm.locals() > 1 ? comm.locals() : comm.size()));
        const std::vector<const std::byte*> everyones = shared_by_near(comm, begin + 5, kFewestShared);
        REQUIRE(std::ssize(everyones) == (all_able ? count : 0));
        if (all_able) CHECK(everyones[static_cast<size_t>(comm.rank() - first)] == begin + 5);
        CHECK(shared_by_near(comm, begin + 5, kFewestShared - 1).empty());
        CHECK(shared_by_near(comm, begin + arena.capacity(), kFewestShared).empty());
        check_order(arena, comm, device.compute(), all_able);
        check_squares(arena, comm, device.compute(), all_able && comm.locals() == 1 && comm.size() > 1);
        for (const int64_t n : {1, 17, 8191, 70001}) {
          check_in<float, float>(arena, comm, device.compute(), n);
          check_in<Bf16, Bf16>(arena, comm, device.compute(), n);
          if (world.size() > 1) check_in<float, Bf16>(arena, comm, device.compute(), n);
        }
        std::memset(arena.buffer().data(), 0, static_cast<size_t>(arena.capacity()));
      }
      CHECK(shared_by_near(comm, arena.buffer().data(), kFewestShared).empty());
    }
  }
}

TEST_CASE("memory that the system does not let a process share is its own") {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit few = before;
  few.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &few);
  Device device(Place::cpu);
  Arena arena(device, 1 << 20, "a test", Memory::shared);
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(arena.buffer().file() == -1);
  const Tensor x = arena.take(Dtype::f32, {1 << 18});
  x.as<float>()[x.size() - 1] = 1;
  CHECK(x.as<float>()[0] == 0);
}

TEST_CASE("memory of another process is opened only if it is what was offered") {
  Device device(Place::cpu);
  Arena arena(device, 1 << 20, "a test", Memory::shared);
  OfferedMemory offer{.process = getpid(), .file = arena.buffer().file(), .bytes = arena.capacity(), .mark = random_mark()};
  CHECK(view_of(offer) == nullptr);  // without the mark
  std::memcpy(arena.buffer().data(), &offer.mark, sizeof offer.mark);
  const std::byte* const view = view_of(offer);
  REQUIRE(view != nullptr);
  CHECK(view != arena.buffer().data());
  CHECK(std::memcmp(view, arena.buffer().data(), static_cast<size_t>(offer.bytes)) == 0);
  munmap(const_cast<std::byte*>(view), static_cast<size_t>(offer.bytes));
  offer.bytes *= 2;
  CHECK(view_of(offer) == nullptr);  // a read beyond the file's end would end this process
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  for (const int end : ends) {
    offer.file = end;
    CHECK(view_of(offer) == nullptr);
    close(end);
  }
  CHECK(view_of(offer) == nullptr);  // closed
  offer.file = -1;
  CHECK(view_of(offer) == nullptr);
}

TEST_CASE("sums of memory that ranks share have the bits of those by messages") {
  for (const int ranks : kSanitized ? std::vector{4} : std::vector{2, 3, 4, 6}) {
    const auto [out, status] = output_of(mpirun(ranks, "ranks of a launcher share memory"));
    INFO(out);
    CHECK(status == 0);
    CHECK_THAT(out, ContainsSubstring("All tests passed"));
  }
}

TEST_CASE("ranks of a launcher enter the same collective", "[.launched]") {
  const World world;
  Mesh mesh(world, ParallelConfig{});
  Journal journal(world.rank());
  mesh.keep(journal);
  std::vector<float> x(8);
  const bool root = mesh.dp().rank() == 1;
  const auto bytes_in = [&](const auto& op) {
    const JournalSpan span = entered(mesh.dp(), op);
    return journal.look().front().entries.at(0).bytes;
  };
  for (const int64_t bytes :
       {bytes_in(Broadcast{.x = tensor(x), .root = 1}),
        bytes_in(Reduce{.sum = root ? tensor(x) : Tensor{}, .x = tensor(x), .root = 1}), bytes_in(AllReduce{.x = tensor(x)})}) {
    CHECK(bytes > 0);
    CHECK(largest(mesh.all(), bytes) == bytes);
    CHECK(largest(mesh.all(), -bytes) == -bytes);
  }
}

TEST_CASE("a hang's verdict finds the same collective on all ranks, also of one with a root") {
  const auto [out, status] = output_of(mpirun(3, "ranks of a launcher enter*"));
  INFO(out);
  CHECK(status == 0);
  CHECK_THAT(out, ContainsSubstring("All tests passed"));
}

// The first message is longer than the other rank expects. Ends at once: the ranks are out of step.
TEST_CASE("ranks of a launcher sum vectors of two sizes", "[.launched]") {
  const World world;
  const Mesh mesh(world, ParallelConfig{});
  Device device(Place::cpu);
  std::vector<float> x(world.rank() == 0 ? 8 : 64);
  try {
    run(mesh.dp(), device.compute(), AllReduce{.x = tensor(x)});
  } catch (const Error& error) {
    std::puts(error.what());
  }
  std::fflush(nullptr);
  std::_Exit(0);
}

TEST_CASE("a message that fails is named with MPI's cause, once the watchdogs have had their time") {
  if (!thorough()) return;  // half a minute
  const auto [out, status] = output_of(mpirun(2, "ranks of a launcher sum vectors*"));
  INFO(out);
  CHECK_THAT(out, ContainsSubstring("runcated"));
}

TEST_CASE("collectives on the ranks of a launcher", "[.launched]") {
  const World world;
  const Mesh mesh(world, ParallelConfig{}), pairs(world, {.two_level = true, .node_ranks = 2}),
      triples(world, {.two_level = true, .node_ranks = 3});
  CHECK(mesh.dp().locals() == 1);
  CHECK(pairs.dp().locals() == (world.size() > 2 && world.size() % 2 == 0 ? 2 : 1));
  CHECK(triples.dp().locals() == (world.size() == 6 ? 3 : 1));
  Device device(Place::cpu);
  for (const Mesh* in : {&mesh, &pairs, &triples})
    for (Stream* stream : {&device.compute(), &device.comm()})
      for (const int64_t n : {1, 2, 3, 17, 1000, 70001}) {
        if (in != &mesh && in->dp().locals() == 1) continue;
        check_all<float, float>(in->dp(), *stream, n);
        check_all<Bf16, Bf16>(in->dp(), *stream, n);
        if (world.size() > 1) check_all<float, Bf16>(in->dp(), *stream, n);
      }
  // A tree of addends has the same bits for any distribution, in parts or whole, in one copy or several.
  const int64_t size = mesh.dp().size(), rank = mesh.dp().rank();
  for (const int64_t m : {1, 513, 1500000})
    for (int64_t parts = 1; parts <= size; ++parts) {
      const int64_t addends = m > 100000 ? 6 : 60;  // for 1 to 5 ranks as many rounds
      const int64_t n = m * parts, first = rank % parts * m;
      if (size % parts != 0 || (m > 100000 && (size != 3 || parts == 1))) continue;  // several messages
      const auto addend = [&](int64_t number) {
        std::vector<float> x(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = value(number % 8, number * n + i);
        return x;
      };
      std::vector<float> tree(static_cast<size_t>(6 * m)), alone(tree.size());
      const auto levels = [&](std::vector<float>& t) { return tensor(t).view({6, m}); };
      const Comm one;
      for (int64_t round = 0; round < addends / size; ++round) {
        std::vector<float> mine = addend(round * size + rank);
        run(mesh.dp(), device.comm(), TreeAddAll{.tree = levels(tree), .all = tensor(mine), .first = round * size});
        device.compute().wait(device.comm().record());
      }
      for (int64_t number = 0; number < addends / size * size; ++number) {
        std::vector<float> all = addend(number);
        run(one, device.compute(), TreeAddAll{.tree = levels(alone), .all = tensor(all).slice(first, first + m), .first = number});
      }
      for (std::vector<float>* t : {&tree, &alone})
        run(device.compute(), TreeTotal{.tree = levels(*t), .count = addends / size * size});
      CHECK(std::memcmp(tree.data(), alone.data(), static_cast<size_t>(m) * 4) == 0);
    }
  // Received and scattered values may be accumulated.
  std::vector<float> x = values<float>(rank, 9000), part(100, 2.0f), all(static_cast<size_t>(100 * size), 1.0f);
  const int64_t next = (rank + 1) % size, before = (rank + size - 1) % size;
  if (size > 1) {
    std::vector<float> sum(9000, 1.0f);
    const std::vector<float> theirs = values<float>(before, 9000);
    run(mesh.dp(), device.pipe(0), Send{.x = tensor(x), .peer = next, .channel = Channel::tied});
    run(mesh.dp(), device.comm(), Receive{.x = tensor(sum), .peer = before, .channel = Channel::tied, .accumulate = true});
    run(mesh.dp(), device.comm(), ReduceScatter{.part = tensor(part), .all = tensor(all), .accumulate = true});
    device.compute().wait(device.comm().record());
    device.compute().wait(device.pipe(0).record());
    std::vector<float> expected;
    for (const float their : theirs) expected.push_back(1.0f + their);
    CHECK(sum == expected);
    CHECK(part == std::vector<float>(100, 2.0f + static_cast<float>(size)));
  }
  // NaN stays visible.
  for (const auto kind : {AllReduce::Kind::sum, AllReduce::Kind::max}) {
    std::vector<float> x(10, mesh.dp().rank() == mesh.dp().size() - 1 ? NAN : 1.0f);
    run(mesh.dp(), device.compute(), AllReduce{.x = tensor(x), .kind = kind});
    for (const float element : x) CHECK(std::isnan(element));
  }
}

TEST_CASE("collectives move and sum what they say, on one to six ranks, in nodes and not") {
  for (const int ranks : kSanitized ? std::vector{4} : std::vector{1, 2, 3, 4, 6}) {
    const auto [out, status] = output_of(mpirun(ranks, "collectives on the ranks*"));
    INFO(out);
    CHECK(status == 0);
    CHECK_THAT(out, ContainsSubstring("All tests passed"));
  }
}

TEST_CASE("an imagined group counts what a rank sends and moves nothing") {
  Tally tally;
  Stream stream(tally);
  const Comm comm("dp", 3, 16);
  const Tensor all(nullptr, Dtype::f32, Place::none, {1600}), part(nullptr, Dtype::f32, Place::none, {100});
  run(comm, stream, AllReduce{.x = all});
  run(comm, stream, ReduceScatter{.part = part, .all = all});
  run(comm, stream, AllGather{.all = all, .part = part});
  run(Comm(), stream, AllReduce{.x = all});
  CHECK(tally.at("all_reduce dp").calls == 1);
  CHECK(tally.at("all_reduce dp").bytes == 2 * 6400 * 15.0 / 16);
  CHECK(tally.at("reduce_scatter dp").bytes == 400 * 15);
  run(comm, stream, ReduceScatter{.part = part, .all = all, .bf16_on_wire = true});
  CHECK(tally.at("reduce_scatter dp").bytes == 400 * 15 + 200 * 15);
  CHECK(tally.at("all_gather dp").bytes == 400 * 15);
  CHECK(tally.size() == 3);
  CHECK_THROWS_AS(run(comm, stream, AllGather{.all = part, .part = part}), Error);
  Device device(Place::cpu);
  std::vector<float> x(4);
  CHECK_THROWS_WITH(run(comm, device.compute(), AllReduce{.x = tensor(x)}),
                    ContainsSubstring("a collective along dp of an imagined mesh"));
}
