// Resharding from any mesh to any other: what ranks of one mesh have written, ranks of another read
// to the bit.
#include <fcntl.h>

#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "base/philox.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/save_summary.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"
#include "test/sanitized.h"
#include "train/step/host_state.h"
#include "train/step/step.h"

namespace trireme {
namespace {

// Heads and hidden units divide by every number up to eight; layers and vocabulary by few: some ranks have no row of it.
RunConfig divisible(const std::string& model) {
  RunConfig config;
  ModelConfig& m = config.model;
  config.kernels.dtype = model == "gpt2" ? StepDtype::f32 : StepDtype::bf16;
  m.family = model == "gpt2" ? Family::gpt2 : Family::llama;
  m.tied = model == "gpt2";
  m.layers = 8, m.width = 8, m.heads = 840, m.head_size = 2, m.ffn = 840, m.vocab = 9, m.context = 16;
  if (m.family == Family::llama) m.kv_heads = 1, m.qk_norm = true;
  config.resolve();
  return config;
}

struct NamedMesh {
  ParallelConfig parallel;
  std::string told;
};

// All (dp, pp, tp) of up to eight ranks, their ZeRO stages, shards and schedules in turn.
std::vector<NamedMesh> all_meshes() {
  std::vector<NamedMesh> meshes;
  for (int64_t dp = 1; dp <= 8; ++dp)
    for (int64_t pp = 1; dp * pp <= 8; ++pp)
      for (int64_t tp = 1; dp * pp * tp <= 8; ++tp) {
        const auto turn = static_cast<int64_t>(meshes.size());
        ParallelConfig p{.dp = dp, .pp = pp, .tp = tp, .zero = dp > 1 ? (turn + dp) % 4 : 0};
        using enum Schedule;
        if (pp > 1) p.schedule = std::array{one_f_one_b, interleaved, zero_bubble, zero_bubble_v}[static_cast<size_t>(turn % 4)];
        if ((p.schedule == interleaved || p.schedule == zero_bubble_v) && 2 * pp > 8) p.schedule = gpipe;
        if (p.zero > 0 && dp % 2 == 0) p.shard = std::array<int64_t, 4>{0, 1, 2, dp / 2}[static_cast<size_t>(turn / 2 % 4)];
        meshes.push_back(
            {p, text("dp ", dp, " pp ", pp, " tp ", tp, " zero ", p.zero, " shard ", p.shard, " ", name_of(p.schedule))});
      }
  return meshes;
}

// A number of its own for each element of each tensor.
float element(uint64_t name, int64_t index) { return static_cast<float>(philox64(name, static_cast<uint64_t>(index)) % 100003); }

// The state of all ranks of a mesh, as a run of this config holds and saves it.
class Ranks {
 public:
  Ranks(RunConfig config, const ParallelConfig& parallel) {
    config.parallel = parallel;
    config.train.batch = 8 * parallel.dp * parallel.pp, config.train.microbatch = 1;
    const int64_t ranks = parallel.dp * parallel.pp * parallel.tp;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Mesh mesh(rank, ranks, config.parallel);
      Device device(Place::none);
      TrainState run(config, mesh, device, {});
      held.push_back(state_slices(run, Ownership::held));
      std::set<std::pair<std::string, std::vector<int64_t>>> saved;
      for (const TensorSlice& slice : state_slices(run, Ownership::saved)) saved.insert({slice.name, slice.offset});
      for (TensorSlice& slice : held.back()) {
        void* data = memory_.emplace_back(static_cast<size_t>(slice.local.bytes())).data();
        slice.local = slice.local.dims() == 1
                          ? Tensor(data, slice.local.dtype(), Place::cpu, {slice.local.dim(0)})
                          : Tensor(data, slice.local.dtype(), Place::cpu, {slice.local.dim(0), slice.local.dim(1)});
      }
      // The first of several copies on one rank is saved.
      std::vector<TensorSlice>& mine = once.emplace_back();
      for (const TensorSlice& slice : held.back())
        if (saved.erase({slice.name, slice.offset}) > 0) mine.push_back(slice);
    }
  }

  void fill() {
    each([](float& x, float wanted) { x = wanted; });
  }
  void clear() {
    each([](float& x, float) { x = -1; });
  }
  int64_t wrong() {
    int64_t count = 0;
    each([&](float& x, float wanted) { count += x != wanted; });
    return count;
  }

  Manifest save(const Io& io, const std::string& directory) const {
    Manifest manifest{
        .run = "0123456789abcdef", .save = "0123456789abcdef", .step = 1, .counters = {}, .config = "", .files = {}, .tensors = {}};
    std::filesystem::create_directories(directory);
    SaveSummary all;
    for (size_t rank = 0; rank < once.size(); ++rank) {
      SaveSummary summary(write_rank_file(io, directory, static_cast<int>(rank), once[rank], true));
      summary.layout = layout_share(static_cast<int64_t>(rank), once[rank]);
      all.add(summary);
    }
    all.fill(manifest);
    manifest.ranks = std::ssize(once);
    return parse_manifest(write_manifest(manifest));
  }
  // `saved`: the ranks that did, if the readers know them.
  void restore(const Io& io, const std::string& directory, const Manifest& manifest, const Ranks* saved = nullptr) const {
    Layout layout;
    if (saved != nullptr) layout = [saved](int64_t rank) { return saved->once[static_cast<size_t>(rank)]; };
    std::set<std::string> names;
    for (const TensorEntry& tensor : manifest.tensors) names.insert(tensor.name);
    for (size_t rank = 0; rank < held.size(); ++rank)
      read_slices(io, directory, manifest, held[rank],
                  {.tensors = names, .rank = {.rank = static_cast<int64_t>(rank), .ranks = std::ssize(held), .layout = layout}});
  }
  int64_t empty_shards() const {
    int64_t count = 0;
    for (const auto& slices : held)
      count += std::ranges::none_of(slices, [](const TensorSlice& slice) { return slice.name == "embedding.tokens"; });
    return count;
  }

  std::vector<std::vector<TensorSlice>> held, once;  // by rank

 private:
  template <class Visit>
  void each(Visit visit) {
    for (const std::vector<TensorSlice>& slices : held)
      for (const TensorSlice& slice : slices) {
        const uint64_t name = std::hash<std::string>()(slice.name);
        float* x = slice.local.as<float>();
        for_each_run(box_of(slice), {0, slice.local.size()}, whole(slice.global_shape), box_of(slice),
                     [&](int64_t global, int64_t local, int64_t count) {
                       for (int64_t i = 0; i < count; ++i) visit(x[local + i], element(name, global + i));
                     });
      }
  }
  std::deque<std::vector<std::byte>> memory_;
};

struct Resharded {
  int64_t pairs = 0, without_rows = 0;
};

// Each `stride`-th ordered pair of meshes, there and back.
Resharded check_pairs(size_t stride) {
  const Io io;
  Resharded found;
  size_t number = 0;
  for (const std::string model : {"gpt2", "llama"}) {
    const Scratch scratch(quick_directory());
    const RunConfig config = divisible(model);
    const std::vector<NamedMesh> meshes = all_meshes();
    REQUIRE(meshes.size() == 38);
    std::map<size_t, std::pair<Ranks, Manifest>> saved;
    const auto of = [&](size_t i) -> std::pair<Ranks, Manifest>& {
      const auto known = saved.find(i);
      if (known != saved.end()) return known->second;
      Ranks ranks(config, meshes[i].parallel);
      ranks.fill();
      Manifest manifest = ranks.save(io, scratch / std::to_string(i));
      found.without_rows += ranks.empty_shards() > 0;
      return saved.emplace(i, std::pair(std::move(ranks), std::move(manifest))).first->second;
    };
    for (size_t a = 0; a < meshes.size(); ++a)
      for (size_t b = 0; b < meshes.size(); ++b) {
        if (number++ % stride != 0) continue;
        INFO(model << ": " << meshes[a].told << " -> " << meshes[b].told);
        auto& [from, manifest] = of(a);
        auto& [to, own] = of(b);
        to.clear();
        to.restore(io, scratch / std::to_string(a), manifest, found.pairs % 2 == 0 ? &from : nullptr);
        REQUIRE(to.wrong() == 0);
        REQUIRE(tensors_digest(own.tensors) == tensors_digest(manifest.tensors));
        // And back, from what it saves of that.
        const Manifest again = to.save(io, scratch / "there");
        REQUIRE(tensors_digest(again.tensors) == tensors_digest(manifest.tensors));
        from.clear();
        from.restore(io, scratch / "there", again);
        REQUIRE(from.wrong() == 0);
        std::filesystem::remove_all(scratch / "there");
        ++found.pairs;
      }
  }
  return found;
}

}  // namespace

TEST_CASE("some meshes read what others wrote, there and back, to the bit") {
  const Resharded found = check_pairs(kSanitized ? 4 * 211 : 211);
  CHECK(found.pairs >= (kSanitized ? 3 : 13));
  CHECK(found.without_rows > 0);
}

TEST_CASE("every mesh of up to eight ranks reads what every other wrote, there and back, to the bit", "[.][soak]") {
  const Resharded found = check_pairs(1);
  WARN(found.pairs << " ordered pairs of meshes, two models; " << found.without_rows
                   << " meshes with a rank that has no row of the table");
  CHECK(found.pairs == 2 * 38 * 38);
}

// Invariant numerics compute max_tp parts on every mesh. With fewer key-value heads than parts, a rank holds several copies of one,
// and as many elements as the whole tensor has without holding the whole: where max_tp = kv_heads x tp x (dp, if zero > 0).
TEST_CASE("ranks with several copies of a key-value head read what every mesh wrote, to the bit", "[unsanitized]") {
  const Io io;
  int64_t cells = 0;
  for (const auto& [kv_heads, max_tp] : {std::pair<int64_t, int64_t>(1, 4), {2, 4}, {2, 8}, {4, 8}}) {
    const Scratch scratch(quick_directory());
    RunConfig config;
    config.kernels.dtype = StepDtype::f32;
    config.model = {.family = Family::llama,
                    .layers = 2,
                    .width = 8,
                    .heads = 8,
                    .kv_heads = kv_heads,
                    .head_size = 2,
                    .ffn = 8,
                    .vocab = 9,
                    .context = 16,
                    .qkv_bias = true};
    config.resolve();
    std::deque<std::pair<Ranks, Manifest>> saved;  // where they are, they stay: shards look into them
    std::vector<std::string> told;
    for (const int64_t tp : {1, 2, 4})
      for (const int64_t dp : {1, 2, 4})
        for (int64_t zero = 0; zero <= 3; ++zero) {
          if (tp > max_tp || tp * dp > 8 || (dp == 1 && zero > 0)) continue;
          cells += kv_heads > 1 && max_tp == kv_heads * tp * (zero > 0 ? dp : 1);
          Ranks ranks(config, {.dp = dp, .tp = tp, .zero = zero, .numerics = Numerics::invariant, .max_tp = max_tp});
          ranks.fill();
          Manifest manifest = ranks.save(io, scratch / std::to_string(saved.size()));
          saved.emplace_back(std::move(ranks), std::move(manifest));
          told.push_back(text("kv_heads ", kv_heads, " max_tp ", max_tp, " tp ", tp, " dp ", dp, " zero ", zero));
        }
    for (size_t a = 0; a < saved.size(); ++a)
      for (size_t b = 0; b < saved.size(); ++b) {
        if (a != b && (a + b) % 3 != 0) continue;
        INFO(told[a] << " -> " << told[b]);
        Ranks& to = saved[b].first;
        to.clear();
        REQUIRE_NOTHROW(to.restore(io, scratch / std::to_string(a), saved[a].second));
        REQUIRE(to.wrong() == 0);
        REQUIRE(tensors_digest(saved[b].second.tensors) == tensors_digest(saved[a].second.tensors));
      }
  }
  CHECK(cells == 20);
}

TEST_CASE("a rank opens its own file on the mesh that saved, and on another those that it meets") {
  const Scratch scratch(quick_directory());
  const RunConfig config = divisible("llama");
  Ranks from(config, {.dp = 2, .pp = 2, .tp = 2, .zero = 1}), other(config, {.dp = 4, .pp = 2, .tp = 1, .zero = 1});
  from.fill();
  const Manifest manifest = from.save(Io(), scratch / "there");
  Io io;
  int64_t opens = 0;
  io.open = [&opens, real = io.open](const char* path, int flags, mode_t mode) {
    opens += (flags & O_DIRECT) == 0;
    return real(path, flags, mode);
  };
  from.clear();
  from.restore(io, scratch / "there", manifest, &from);
  CHECK(from.wrong() == 0);
  CHECK(opens <= 4 + 4 * 3);  // norms, and the key-value head that two ranks share, are in the file of one of them
  Ranks flat(config, {.dp = 8, .zero = 3});
  flat.fill();
  const Manifest of_flat = flat.save(Io(), scratch / "flat");
  opens = 0;
  flat.clear();
  flat.restore(io, scratch / "flat", of_flat);
  CHECK(flat.wrong() == 0);
  CHECK(opens == 8);
  opens = 0;
  other.restore(io, scratch / "there", manifest, &from);
  CHECK(other.wrong() == 0);
  CHECK(opens <= 8 * 6);  // the four of its stage, after a look into its own and a neighbour's
  // A layout that is not the one that saved is noticed, and all files are looked into.
  other.clear();
  other.restore(io, scratch / "there", manifest, &other);
  CHECK(other.wrong() == 0);
}

TEST_CASE("a rank reads the pages that hold its part of a tensor, and no others") {
  const Scratch scratch(quick_directory());
  constexpr int64_t kRows = 4096, kCols = 1024;  // 16 pages
  std::vector<float> all(kRows * kCols);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const TensorSlice whole{.name = "x",
                          .global_shape = {kRows, kCols},
                          .offset = {0, 0},
                          .local = Tensor(all.data(), Dtype::f32, Place::cpu, {kRows, kCols})};
  Io io;
  const Manifest manifest = write_rank_file(io, scratch.path(), 0, {whole});
  int64_t bytes = 0;
  io.pread = [&bytes, real = io.pread](int fd, void* to, size_t count, off_t offset) {
    bytes += static_cast<int64_t>(count);
    return real(fd, to, count, offset);
  };
  for (const auto& [first, rows, pages] : {std::tuple(int64_t{0}, int64_t{256}, 1), {1024, 512, 2}, {1000, 300, 3}, {4095, 1, 1}}) {
    std::vector<float> part(static_cast<size_t>(rows * kCols));
    bytes = 0;
    read_slices(io, scratch.path(), manifest,
                {{.name = "x",
                  .global_shape = {kRows, kCols},
                  .offset = {first, 0},
                  .local = Tensor(part.data(), Dtype::f32, Place::cpu, {rows, kCols})}});
    CHECK(std::memcmp(part.data(), all.data() + first * kCols, part.size() * 4) == 0);
    CHECK(bytes == (pages << 20) + 8 * 16);
  }
  // A byte of the second page.
  std::fstream file(scratch / "shard-00000.h5", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(manifest.files[0].pieces[0].at + (1 << 20) + 5);
  file.put('!');
  file.close();
  std::vector<float> part(256 * kCols);
  const auto read = [&](int64_t first) {
    read_slices(io, scratch.path(), manifest,
                {{.name = "x",
                  .global_shape = {kRows, kCols},
                  .offset = {first, 0},
                  .local = Tensor(part.data(), Dtype::f32, Place::cpu, {256, kCols})}});
  };
  CHECK_THROWS_WITH(read(256), ContainsSubstring("tensor x does not match its digest in the MiB at byte"));
  CHECK_NOTHROW(read(512));
}

}  // namespace trireme
