#include "test/train/run/random_mesh.h"

#include <initializer_list>
#include <numeric>
#include <stdexcept>

#include "base/philox.h"
#include "train/config/config.h"

namespace trireme {
namespace {

// A sequence of random draws.
class Draw {
 public:
  Draw(uint64_t seed, std::string_view purpose) : key_(stream_key(seed, purpose)) {}
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(philox64(key_, next_++) % static_cast<uint64_t>(most - least + 1));
  }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
  }

 private:
  uint64_t key_, next_ = 0;
};

template <class T>
std::string set(const char* key, const T& value) {
  return key + std::string("=") + std::string(text(value));
}

// True if a run of `ranks` ranks may have these settings.
bool is_valid(const std::string& config, const Settings& settings) {
  try {
    read_config(config, settings);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Heads of two elements have no norms of their own: with one element near 0, they amplify rounding ten thousandfold.
Settings of_attention(Draw& draw, const std::string& kind, int64_t heads) {
  const bool gpt2 = kind == "gpt2";
  const int64_t fewest = kind == "qwen3" ? 2 : 1;
  int64_t kv_heads = heads;
  while (!gpt2 && (kv_heads == heads || heads % kv_heads != 0) && heads > 1) kv_heads = draw.between(1, heads - 1);
  Settings settings{set("model.family", gpt2 ? "gpt2" : "llama"), set("model.heads", heads), set("model.kv_heads", kv_heads),
                    set("model.head_size", gpt2 ? draw.between(1, 9) : 2 * draw.between(fewest, 5))};
  if (kind == "mistral") settings.push_back(set("model.window", draw.between(1, 9)));
  if (kind == "qwen2") settings.push_back("model.qkv_bias=true");
  if (kind == "qwen3") settings.push_back("model.qk_norm=true");
  return settings;
}

}  // namespace

RandomModel random_model(const std::string& config, uint64_t seed) {
  Draw draw(seed, "model");
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int64_t heads = draw.of<int64_t>({2, 3, 4, 4, 6, 8, 8, 12}), rows = draw.between(1, 2);
    RandomModel model{.seed = seed, .invariant = draw.one_in(2)};
    model.settings = of_attention(draw, draw.of<const char*>({"gpt2", "llama", "mistral", "qwen2", "qwen3"}), heads) +
                     Settings{set("model.layers", draw.between(2, 9)),
                              set("model.width", draw.between(3, 40)),
                              set("model.ffn", heads * draw.between(1, 5)),
                              set("model.vocab", draw.between(259, 300)),
                              set("model.context", draw.between(3, 20)),
                              set("model.tied", draw.one_in(2) ? "true" : "false"),
                              set("model.norm_eps", draw.of<const char*>({"1e-3", "1e-5", "1e-6"})),
                              set("model.init_std", draw.of<const char*>({"0.05", "0.1", "0.3"})),
                              set("model.z_loss", draw.of<const char*>({"0", "1e-3"})),
                              set("model.theta", draw.of<const char*>({"100", "10000", "500000"})),
                              set("model.document_mask", draw.one_in(2) ? "true" : "false"),
                              set("model.restart_positions", draw.one_in(3) ? "true" : "false"),
                              set("train.batch", rows * draw.of<int64_t>({8, 12, 16, 24})),
                              set("train.microbatch", rows),
                              set("train.seed", draw.between(1, 1000))};
    if (model.invariant)
      model.settings.insert(model.settings.end(),
                            {"parallel.numerics=invariant", set("parallel.max_tp", draw.of<int64_t>({1, 2, 4, 8, 8})),
                             set("kernels.dtype", draw.one_in(3) ? "bf16" : "f32")});
    if (std::ranges::count(model.settings, "kernels.dtype=bf16") > 0 && Draw(seed, "residual").one_in(2))
      model.settings.push_back("kernels.residual=bf16");
    const Settings alone = model.settings + Settings{"parallel.dp=1"};
    if (!is_valid(config, alone)) continue;
    const RunConfig read = read_config(config, alone);
    model.shares_heads = model.invariant && read.model.kv_heads >= 2 && read.parallel.shards() > read.model.kv_heads;
    return model;
  }
  throw std::runtime_error("no model of this seed is valid");
}

namespace {

RandomMesh draw_mesh(Draw& draw, bool invariant) {
  RandomMesh mesh;
  int64_t dp = 1, pp = 1, tp = 1;
  while (dp * pp * tp < 2 || dp * pp * tp > 8) dp = draw.between(1, 8), pp = draw.between(1, 4), tp = draw.between(1, 8);
  const bool halves = draw.one_in(3), turned = halves && draw.one_in(2), pieces = !halves && pp > 1 && draw.one_in(2);
  mesh.ranks = static_cast<int>(dp * pp * tp);
  mesh.chunks = pieces, mesh.three_axes = dp > 1 && pp > 1 && tp > 1;
  mesh.settings = {set("parallel.dp", dp),
                   set("parallel.pp", pp),
                   set("parallel.tp", tp),
                   set("parallel.zero", draw.between(0, 3)),
                   set("parallel.schedule", pieces   ? "interleaved"
                                            : turned ? "zero_bubble_v"
                                            : halves ? "zero_bubble"
                                                     : draw.of<const char*>({"gpipe", "1f1b"})),
                   set("parallel.sequence", draw.one_in(2) ? "true" : "false"),
                   set("train.recompute", draw.of<const char*>({"none", "selective", "full"}))};
  if (halves && !turned && draw.one_in(2)) mesh.settings.push_back(set("parallel.deferred", draw.between(1, 3)));
  if (tp > 1 && draw.one_in(2)) mesh.settings.push_back("parallel.tp_overlap=true");
  if (pieces) mesh.settings.push_back(set("parallel.chunks", draw.between(2, 4)));
  if (!invariant && draw.one_in(3)) mesh.settings.push_back(set("train.microbatch", draw.between(1, 3)));
  if (!invariant && dp % 2 == 0 && draw.one_in(4))
    mesh.settings.insert(mesh.settings.end(), {"parallel.two_level=true", "parallel.node_ranks=2"});
  return mesh;
}

// Deals half-layers to the pieces of the pipeline at random, at least one to each but the first and the last.
void deal_layers(Draw& draw, const RunConfig& config, RandomMesh& mesh) {
  const int64_t pieces = config.parallel.pp * config.parallel.stage_chunks();
  std::vector<int64_t> halves(static_cast<size_t>(pieces), 1);
  if (pieces > 2 && draw.one_in(3)) halves.front() = 0;
  if (pieces > 1 && draw.one_in(3)) halves.back() = 0;
  const int64_t least = std::accumulate(halves.begin(), halves.end(), int64_t{0});
  for (int64_t left = 2 * config.model.layers - least; left > 0; --left)
    if (int64_t& n = halves[static_cast<size_t>(draw.between(0, pieces - 1))]; n > 0 || pieces == 1)
      ++n;
    else
      ++left;
  std::string list;
  for (const int64_t n : halves) list += (list.empty() ? "" : ",") + std::to_string(n / 2) + (n % 2 > 0 ? ".5" : "");
  mesh.settings.push_back("parallel.layers=[" + list + "]");
}

}  // namespace

RandomMesh random_mesh(const std::string& config, const RandomModel& model, uint64_t number) {
  Draw draw(model.seed * 1000 + number, "mesh");
  const bool chunks = number % 4 == 1, three_axes = number % 4 == 3;
  for (int attempt = 0; attempt < 4000; ++attempt) {
    const RandomMesh mesh = draw_mesh(draw, model.invariant);
    const bool wanted = attempt >= 3000 || ((!chunks || mesh.chunks) && (!three_axes || mesh.three_axes));
    if (!wanted || !is_valid(config, model.settings + mesh.settings)) continue;
    RandomMesh dealt = mesh;
    const RunConfig read = read_config(config, model.settings + mesh.settings);
    if (Draw shard(model.seed * 1000 + number, "shard"); read.parallel.zero > 0 && !read.parallel.two_level) {
      const int64_t parts = shard.between(1, read.parallel.dp);
      if (read.parallel.dp % parts == 0) dealt.settings.push_back(set("parallel.shard", parts));
    }
    if (Draw(model.seed * 1000 + number, "when").one_in(3) && read.parallel.zero > 1 && !model.invariant)
      dealt.settings.push_back("parallel.reduce_when=step");
    if (Draw units(model.seed * 1000 + number, "units"); read.parallel.zero > 1 && units.one_in(2))
      dealt.settings.push_back(set("parallel.unit_size", units.of<const char*>({"0.01", "0.05", "1"})));
    if (Draw stages(model.seed * 1000 + number, "stages"); read.recomputing_stages() > 0 && stages.one_in(2))
      dealt.settings.push_back(set("train.recompute_stages", stages.between(1, read.parallel.pp)));
    Draw by_hand(model.seed * 1000 + number, "layers");
    if (by_hand.one_in(2)) deal_layers(by_hand, read, dealt);
    return dealt;
  }
  throw std::runtime_error("no mesh of this model is valid");
}

}  // namespace trireme
