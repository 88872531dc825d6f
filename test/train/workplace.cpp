#include "test/train/workplace.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "base/philox.h"
#include "parallel/mesh.h"
#include "test/catch.h"

namespace trireme {
namespace {

// Each letter has four successors, of probabilities 1/2, 1/4, 1/8 and 1/8. One random number serves twenty letters, 3 bits each.
std::string markov_text(size_t length, uint64_t seed) {
  char successor[16][4];
  for (int state = 0; state < 16; ++state)
    for (int rank = 0; rank < 4; ++rank)
      successor[state][rank] =
          static_cast<char>((philox64(99, static_cast<uint64_t>(state)) + static_cast<uint64_t>(rank) * 5) % 16);
  std::string text(length, 'a');
  int state = 0;
  uint64_t bits = 0;
  for (size_t i = 0; i < length; ++i, bits >>= 3) {
    if (i % 20 == 0) bits = philox64(seed, i / 20);
    const uint64_t draw = bits % 8;
    state = successor[state][draw < 4 ? 0 : draw < 6 ? 1 : draw < 7 ? 2 : 3];
    text[i] = static_cast<char>('a' + state);
  }
  return text;
}

const char* const kConfig = R"(
kernels: {dtype: f32, threads: 1}
model: {family: llama, layers: 1, width: 32, heads: 2, vocab: 257, context: 64}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
checkpoint: {every: 5, keep: 2}
train: {name: tiny, steps: 20, batch: 4, microbatch: 2, lr: 0.01, warmup: 5, eval_every: 10, eval_sequences: 8}
report: {powercap: ""}
)";

}  // namespace

Workplace::Workplace() {
  write_text(scratch / "train.txt", markov_text(300000, 1));
  write_text(scratch / "held.txt", markov_text(20000, 2));
  write_text(scratch / "config.yaml", kConfig);
  const Ended built = run_trireme(scratch.path(), {"data", "build", "train.txt", "--validation-input", "held.txt", "--output",
                                                   "shards", "--tokenizer", "bytes"});
  INFO(built.err);
  REQUIRE(built.code == 0);
}

std::vector<std::string> Workplace::arguments(const std::vector<std::string>& settings) {
  std::vector<std::string> words{"train", "config.yaml"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return words;
}

Ended Workplace::train(const std::vector<std::string>& settings, int ranks) const {
  return Process(scratch.path(), arguments(settings), ranks).wait();
}

std::string Workplace::run(const std::string& name, const std::string& file) const {
  return read_text(scratch / ("runs/" + name + "/" + file));
}

bool comes_when_measured(std::string_view line) {
  const auto has = [&](std::string_view key) { return line.find(key) != std::string_view::npos; };
  return has("\"saved_bytes\"") || has("\"slowest_rank\"") || has("\"straggler\"") || has("\"slow_link\"");
}

int64_t Workplace::lines(const std::string& name) const {
  std::istringstream in(run(name, "metrics.jsonl"));
  int64_t count = 0;
  for (std::string line; std::getline(in, line);) count += comes_when_measured(line) ? 0 : 1;
  return count;
}

std::vector<Json> Workplace::metrics(const std::string& name) const {
  std::vector<Json> objects;
  std::istringstream in(run(name, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    if (comes_when_measured(line)) continue;
    Json object = Json::parse(line);
    for (const char* key : {"step_ms", "data_ms", "tokens_per_second", "mfu", "seconds", "mfu_full", "hfu", "parts_ms"})
      object.erase(key);
    objects.push_back(object);
  }
  return objects;
}

int Workplace::differ(const std::string& a, const std::string& b) const {
  return run_trireme(scratch.path(), {"checkpoint", "diff", "runs/" + a, "runs/" + b}).code;
}

Ended train_inside(const Workplace& place, const std::string& hidden_test, int ranks, const std::string& change,
                   const std::vector<std::string>& settings) {
  std::string all;
  for (const std::string& setting : settings) all += setting + "\n";
  setenv("INSIDE_CHANGE", change.c_str(), 1);
  setenv("INSIDE_RUN", place.scratch.path().c_str(), 1);
  setenv("INSIDE_SETTINGS", all.c_str(), 1);
  return run_launched({std::filesystem::read_symlink("/proc/self/exe").string(), hidden_test}, ranks);
}

InsideRun inside_run(const World& world) {
  REQUIRE(chdir(environment("INSIDE_RUN").c_str()) == 0);
  std::istringstream lines(environment("INSIDE_SETTINGS"));
  std::vector<std::string> settings;
  for (std::string line; std::getline(lines, line);) settings.push_back(line);
  InsideRun run{.config = read_config("config.yaml", settings), .change = environment("INSIDE_CHANGE")};
  run.config.parallel.dp = mesh_sizes(world.size(), run.config.parallel).dp;
  return run;
}

void succeed(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.code == 0);
}

}  // namespace trireme
