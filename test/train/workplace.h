// A directory to train in: a corpus of known entropy, a small config, and the runs made from them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "parallel/world.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "train/config/config.h"

namespace trireme {

// The corpus is text of a Markov chain over 16 letters: from each letter to four others with probabilities 1/2, 1/4, 1/8, 1/8.
// Its entropy rate is 1.75 bits = 1.21301 nats a letter whatever the letters' own frequencies.
inline constexpr double kEntropy = 1.75 * 0.69314718055994531;

// Lines of metrics.jsonl whose place, and whether they come, depend on the clock: saves, and the work of ranks.
bool comes_when_measured(std::string_view line);

// config.yaml: one llama layer of width 32, f32, 20 steps of 4 sequences in microbatches of 2, a checkpoint every 5, one thread.
struct Workplace {
  Scratch scratch;

  Workplace();

  static std::vector<std::string> arguments(const std::vector<std::string>& settings);
  Ended train(const std::vector<std::string>& settings, int ranks = 1) const;  // several ranks: under mpirun

  std::string run(const std::string& name, const std::string& file) const;
  int64_t lines(const std::string& name) const;              // of metrics.jsonl
  std::vector<Json> metrics(const std::string& name) const;  // metrics.jsonl without what depends on the clock
  // Exit code of `checkpoint diff` for the last checkpoints of two runs: 0 if every weight and
  // moment has the same bits.
  int differ(const std::string& a, const std::string& b) const;
};

// A run whose ranks are this test program, so that a hidden test changes what steps do. `change` is for that test to read.
Ended train_inside(const Workplace& place, const std::string& hidden_test, int ranks, const std::string& change,
                   const std::vector<std::string>& settings);
// In the hidden test, which then works in the run's place.
struct InsideRun {
  RunConfig config;
  std::string change;
};
InsideRun inside_run(const World& world);

void succeed(const Ended& ended);

}  // namespace trireme
