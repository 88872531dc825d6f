#include "train/hub/init_from.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/safetensors.h"
#include "parallel/host_collectives.h"
#include "train/hub/published_config.h"
#include "train/hub/published_weights.h"

namespace trireme {

namespace {

// One line for each key of the model that does not fit the published weights.
std::string mismatches(const RunConfig& config, const ModelConfig& published) {
  RunConfig wanted = config;
  wanted.model = published;
  const ModelConfig& model = config.model;
  // Keys that training may choose.
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

// The published tensors, found by names with and without the prefix that some files omit.
class Source {
 public:
  Source(const std::string& path, const std::function<void()>& moved) : files_(path, moved) {
    for (const std::string& name : files_.names()) left_.insert(name);
  }

  // Checks that `weight` is there, with the shape that the published config gives it.
  void expect(const WholeWeight& weight) {
    const std::string name = find(weight.place.name);
    const std::vector<int64_t> wanted = published_shape(weight), there = files_.find(name)->shape;
    left_.erase(name);
    if (there != wanted)
      throw DataError(
          text(files_.path(), ": ", name, " has shape ", shape_of(there), ", but its config.json makes it ", shape_of(wanted)));
  }
  // Throws if the files hold a classifier besides the table, although it is tied, and it differs from
  // these rows of the table, which `slice` holds.
  void expect_tied(const WholeWeight& table, const TensorSlice& slice) const {
    WholeWeight classifier = table;
    classifier.place.name = "lm_head.weight";
    if (files_.find(classifier.place.name) == nullptr || slice.local.size() == 0) return;
    const std::string name = find(table.place.name);
    bool same = files_.find(classifier.place.name)->shape == files_.find(name)->shape;
    const int64_t rows = slice.local.dim(0), cols = slice.local.dim(1), block = std::max<int64_t>(1, kBlock / cols);
    std::vector<float> there(static_cast<size_t>(std::min(block, rows) * cols));
    for (int64_t r = 0; same && r < rows; r += block) {
      const int64_t some = std::min(block, rows - r);
      const float* here = slice.local.as<float>() + r * cols;
      std::copy_n(here, some * cols, there.begin());  // rows beyond the published table stay
      TensorSlice part = slice;
      part.offset[0] += r, part.local = Tensor(there.data(), Dtype::f32, Place::cpu, {some, cols});
      read(classifier, part);
      same = std::equal(here, here + some * cols, there.begin());
    }
    if (!same)
      throw DataError(files_.path() + ": holds an lm_head.weight that differs from " + name +
                      ", although its config.json ties them; set tie_word_embeddings to false there to train both");
  }
  // Throws if tensors are left that no weight has used.
  void expect_nothing_else(bool tied) const {
    for (const std::string& name : left_) {
      const bool buffer =
          name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
      if (!buffer && !(tied && name == "lm_head.weight"))
        throw DataError(files_.path() + ": holds " + name + ", which is not part of the model in its config.json");
    }
  }

  // Reads the part of a weight that `slice` holds; rows beyond the published table stay as they are.
  void read(const WholeWeight& weight, const TensorSlice& slice) const {
    const std::string name = find(weight.place.name);
    auto* const to = slice.local.as<float>();
    const int64_t row = slice.offset[0], first = weight.place.first + row;
    if (slice.local.size() == 0) return;
    if (slice.local.dims() == 1) return files_.read(name, first, slice.local.size(), to);
    const int64_t column = slice.offset[1], cols = slice.local.dim(1);
    if (weight.place.transposed) {
      const int64_t block = std::max<int64_t>(1, kBlock / weight.place.all);
      std::vector<float> whole(static_cast<size_t>(std::min(block, cols) * weight.place.all));
      for (int64_t c = 0; c < cols; c += block) {
        const int64_t some = std::min(block, cols - c);
        files_.read(name, (column + c) * weight.place.all, some * weight.place.all, whole.data());
        for (int64_t i = 0; i < some; ++i)
          for (int64_t r = 0; r < slice.local.dim(0); ++r)
            to[r * cols + c + i] = whole[static_cast<size_t>(i * weight.place.all + first + r)];
      }
      return;
    }
    const int64_t all_cols = weight.shape[1], there = files_.find(name)->shape[0];
    const int64_t rows = std::clamp<int64_t>(there - first, 0, slice.local.dim(0));
    if (cols == all_cols) return files_.read(name, first * cols, rows * cols, to);
    const int64_t block = std::max<int64_t>(1, kBlock / all_cols);
    std::vector<float> whole(static_cast<size_t>(std::min(block, rows) * all_cols));
    for (int64_t r = 0; r < rows; r += block) {
      const int64_t some = std::min(block, rows - r);
      files_.read(name, (first + r) * all_cols, some * all_cols, whole.data());
      for (int64_t i = 0; i < some; ++i) std::copy_n(whole.data() + i * all_cols + column, cols, to + (r + i) * cols);
    }
  }

 private:
  static constexpr int64_t kBlock = 2 << 20;  // elements per read if only some of them are needed

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

void read_slices(const RunConfig& config, const std::vector<TensorSlice>& slices, const std::function<void()>& moved) {
  const std::string& from = config.train.init_from;
  const ModelConfig published = read_published_config(from + "/config.json");
  const std::string wrong = mismatches(config, published);
  if (!wrong.empty())
    throw ConfigError(wrong + "train.init_from: these keys differ from " + from + "; `trireme model config " + from +
                      "` prints a model: section that fits");
  Source source(from, moved);
  for (const WholeWeight& weight : published_weights(published)) source.expect(weight);
  std::map<std::string, WholeWeight> weights;
  for (const WholeWeight& weight : published_weights(config.model)) weights.emplace(weight.name, weight);
  source.expect_nothing_else(config.model.tied);
  for (const TensorSlice& slice : slices)
    if (const auto weight = weights.find(slice.name); weight != weights.end()) {
      source.read(weight->second, slice);
      if (config.model.tied && slice.name == "embedding.tokens") source.expect_tied(weight->second, slice);
    }
}

}  // namespace

void init_from(const RunConfig& config, const std::vector<TensorSlice>& slices, const Comm& ranks,
               const std::function<void()>& moved) {
  std::string problem;
  bool in_config = false;
  try {
    read_slices(config, slices, moved);
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
