// Manifests of the largest runs, with made-up ranks: bytes, seconds and memory.
#include <algorithm>
#include <map>

#include "base/clock.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/save_summary.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "train/config/config.h"
#include "train/run/resume.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

// Summary of a rank that saves these slices, but for digests.
SaveSummary summary_of_slices(int64_t rank, const std::vector<TensorSlice>& slices) {
  Manifest part;
  std::map<std::string, TensorEntry> tensors;
  for (const TensorSlice& slice : slices)
    tensors.try_emplace(slice.name, TensorEntry{.name = slice.name, .dtype = slice.local.dtype(), .shape = slice.global_shape});
  for (auto& [name, tensor] : tensors) part.tensors.push_back(tensor);
  if (!slices.empty())
    part.files.push_back({.name = file_name_of(static_cast<int>(rank)), .bytes = int64_t{1} << 32, .table_bytes = 1 << 14});
  for (const TensorSlice& slice : slices)
    part.files[0].pieces.push_back({.tensor = index_of(part, slice.name), .box = box_of(slice)});
  SaveSummary summary(part);
  summary.layout = layout_share(rank, slices);
  return summary;
}

struct Sizes {
  int64_t ranks = 0, bytes = 0, pieces = 0;
  double walk = 0, merge = 0, write = 0, read = 0;
};

// The manifest of a run on `ranks` ranks, merged in pairs as ranks do it.
Sizes manifest_of(const std::string& model, int64_t ranks, const std::vector<std::string>& settings) {
  const RunConfig config = read_config(std::string(TRIREME_SOURCE) + "/configs/" + model + ".yaml", settings, Purpose::plan);
  const std::string saved = to_yaml(config);
  Sizes sizes{.ranks = ranks};
  auto begin = Clock::now();
  const Layout layout = saved_layout(saved, ranks);
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::vector<TensorSlice> slices = layout(rank);
    sizes.pieces += std::ssize(slices);
    words.push_back(text_of(summary_of_slices(rank, slices)));
  }
  sizes.walk = seconds_since(begin);
  for (size_t reach = 1; reach < words.size(); reach *= 2) {
    for (size_t rank = 0; rank + reach < words.size(); rank += 2 * reach) {
      begin = Clock::now();
      SaveSummary all = summary_of(words[rank]);
      all.add(summary_of(words[rank + reach]));
      words[rank] = text_of(all);
      if (rank == 0) sizes.merge += seconds_since(begin);
      words[rank + reach] = {};
    }
  }
  begin = Clock::now();
  Manifest manifest{.run = "", .save = "", .step = 1, .ranks = ranks, .counters = {}, .config = saved, .files = {}, .tensors = {}};
  summary_of(words[0]).fill(manifest);  // every piece of every rank, once
  const std::string text = write_manifest(manifest);
  sizes.write = seconds_since(begin), sizes.bytes = std::ssize(text);
  begin = Clock::now();
  const Manifest again = parse_manifest(text);
  sizes.read = seconds_since(begin);
  CHECK((std::ssize(again.files) == ranks && again.layout == manifest.layout));
  CHECK(checkpoint_size(config, ranks).manifest_bytes() == Approx(sizes.bytes).epsilon(0.25));
  return sizes;
}

void check_sizes(const std::string& model, int64_t ranks, const std::vector<std::string>& settings) {
  const Sizes sizes = manifest_of(model, ranks, settings);
  WARN(model << " on " << ranks << " ranks, " << settings.front() << ": " << sizes.pieces << " pieces, a manifest of "
             << sizes.bytes << " bytes; seconds: walk of all ranks " << sizes.walk << ", merges of rank 0 " << sizes.merge
             << ", cover and text " << sizes.write << ", reading " << sizes.read);
  CHECK(sizes.bytes < 5'000'000);
  CHECK((kSanitized || sizes.merge + sizes.write < 5));
  CHECK((kSanitized || sizes.read < 5));
}

}  // namespace

TEST_CASE("the manifest of 405B on 1,024 ranks holds a line for each file and each tensor") {
  check_sizes("llama3-405b", 1024, {"parallel.pp=16", "parallel.tp=8"});
}

TEST_CASE("manifests of sixteen thousand ranks are written and read in seconds", "[.][soak]") {
  check_sizes("llama3-405b", 16384, {"parallel.pp=16", "parallel.tp=8"});
  check_sizes("llama3-405b", 16384, {"parallel.pp=8", "parallel.tp=8", "train.batch=4096", "train.microbatch=1"});
  check_sizes("llama3-8b", 16384, {"parallel.tp=8", "train.batch=2048", "train.microbatch=1"});
  check_sizes("llama3-8b", 16384, {"parallel.zero=3", "train.batch=16384", "train.microbatch=1"});
}

}  // namespace trireme
