#include "train/init_from.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/safetensors.h"
#include "parallel/agree.h"
#include "train/published.h"

namespace trireme {

namespace {

// One line for each key of the model that the published weights would not be right for.
std::string mismatches(const RunConfig& config, const ModelConfig& published) {
  RunConfig wanted = config;
  wanted.model = published;
  const ModelConfig& model = config.model;
  // What training may choose.
  wanted.model.init_std = model.init_std;
  wanted.model.z_loss = model.z_loss;
  wanted.model.document_mask = model.document_mask;
  wanted.model.restart_positions = model.restart_positions;
  if (model.vocab >= published.vocab) wanted.model.vocab = model.vocab;
  if (model.family == Family::llama || model.context <= published.context) wanted.model.context = model.context;
  const auto sees_all = [&](int64_t window) { return window == 0 || window >= model.context; };
  if (sees_all(model.window) && sees_all(published.window)) wanted.model.window = model.window;
  std::string lines;
  for (const std::string& difference : differences(wanted, config)) lines += difference + "\n";
  return lines;
}

// The published tensors, by names with and without the prefix that some files leave out.
class Source {
 public:
  explicit Source(const std::string& path) : files_(path) {
    for (const std::string& name : files_.names()) left_.insert(name);
  }

  // Checks that `weight` is there, in its shape but for rows that a table has more or less of.
  void expect(const WholeWeight& weight, bool table) {
    const std::string name = find(weight.place.name);
    std::vector<int64_t> wanted = published_shape(weight), there = files_.find(name)->shape;
    left_.erase(name);
    if (table && there.size() == 2) wanted[0] = there[0] = 1;
    if (there != wanted)
      throw DataError(text(files_.path(), ": ", name, " is of ", shape_of(there), ", model: makes it ", shape_of(wanted)));
  }
  // What no weight has asked for.
  void expect_nothing_else(bool tied) const {
    for (const std::string& name : left_) {
      const bool buffer =
          name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
      if (!buffer && !(tied && name == "lm_head.weight"))
        throw DataError(files_.path() + ": holds " + name + ", which is no part of the model that its config.json tells of");
    }
  }
  int64_t rows(const std::string& published) const { return files_.find(find(published))->shape[0]; }

  // The part of a weight that `shard` holds; rows beyond the published table are left.
  void read(const WholeWeight& weight, const NamedShard& shard) const {
    const std::string name = find(weight.place.name);
    auto* const to = shard.local.as<float>();
    const int64_t row = shard.offset[0], first = weight.place.first + row;
    if (shard.local.size() == 0) return;
    if (shard.local.dims() == 1) return files_.read(name, first, shard.local.size(), to);
    const int64_t column = shard.offset[1], cols = shard.local.dim(1);
    if (weight.place.transposed) {
      std::vector<float> part(static_cast<size_t>(shard.local.dim(0)));
      for (int64_t c = 0; c < cols; ++c) {
        files_.read(name, (column + c) * weight.place.all + first, shard.local.dim(0), part.data());
        for (size_t r = 0; r < part.size(); ++r) to[static_cast<int64_t>(r) * cols + c] = part[r];
      }
      return;
    }
    const int64_t all_cols = weight.shape[1], there = files_.find(name)->shape[0];
    const int64_t rows = std::clamp<int64_t>(there - first, 0, shard.local.dim(0));
    if (cols == all_cols) return files_.read(name, first * cols, rows * cols, to);
    for (int64_t r = 0; r < rows; ++r) files_.read(name, (first + r) * all_cols + column, cols, to + r * cols);
  }

 private:
  static std::string shape_of(const std::vector<int64_t>& shape) {
    std::string sizes;
    for (const int64_t size : shape) sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
    return sizes;
  }
  std::string find(const std::string& name) const {
    if (files_.find(name) != nullptr) return name;
    for (const std::string prefix : {"transformer.", "model."})
      if (name.starts_with(prefix) && files_.find(name.substr(prefix.size())) != nullptr) return name.substr(prefix.size());
    throw DataError(files_.path() + ": holds no " + name);
  }

  PublishedWeights files_;
  std::set<std::string> left_;
};

void read_all(const RunConfig& config, const std::vector<NamedShard>& shards) {
  const std::string& from = config.train.init_from;
  const std::string wrong = mismatches(config, read_published_config(from + "/config.json"));
  if (!wrong.empty())
    throw ConfigError(wrong + "train.init_from: these keys are not those of " + from + "; `trireme model config " + from +
                      "` prints a model: section that is");
  Source source(from);
  std::map<std::string, WholeWeight> weights;
  for (WholeWeight& weight : published_weights(config.model)) {
    const bool table =
        weight.name == "embedding.tokens" || weight.name == "embedding.positions" || weight.name == "head.classifier";
    source.expect(weight, table);
    const std::string name = weight.name;
    weights.emplace(name, std::move(weight));
  }
  source.expect_nothing_else(config.model.tied);
  for (const NamedShard& shard : shards)
    if (const auto weight = weights.find(shard.name); weight != weights.end()) source.read(weight->second, shard);
}

}  // namespace

void init_from(const RunConfig& config, const std::vector<NamedShard>& shards, const Comm& ranks) {
  std::string problem;
  bool in_config = false;
  try {
    read_all(config, shards);
  } catch (const ConfigError& e) {
    problem = e.what(), in_config = true;
  } catch (const std::exception& e) {
    problem = e.what();
  }
  const std::string first = first_problem(ranks, problem);
  const bool of_config = largest(ranks, in_config ? 1 : 0) > 0;
  if (first.empty()) return;
  if (of_config) throw ConfigError(first);
  throw DataError(first);
}

}  // namespace trireme
