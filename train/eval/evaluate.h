// The loss on held-out text.
#pragma once

#include <functional>
#include <span>

#include "data/loader/corpus.h"
#include "data/loader/text_stream.h"
#include "train/step/step.h"

namespace trireme {

// What is to be predicted: sequences of the Stage's context, by number. Targets below 0 are none.
struct Sequences {
  int64_t count;
  std::function<void(int64_t sequence, const SampleRow& row)> read;
};

struct PredictHooks {
  // On ranks with the model's last part, each sequence of this replica: its targets, and the loss of each in nats, without z-loss.
  std::function<void(int64_t sequence, std::span<const int32_t> targets, std::span<const float> losses)> tell;
  // All ranks together, between messages, after about this many sequences of all replicas. If all ranks throw, the rest is left.
  std::function<void(int64_t done)> progressed{};
};

// Each replica its part of the sequences, all ranks together. Uses the Stage's activations; changes no weight.
void predict(TrainState& run, const Sequences& sequences, const PredictHooks& hooks);

struct Evaluation {
  double loss = 0;           // nats per target token
  double bits_per_byte = 0;  // loss in bits over the UTF-8 bytes of the text; of a part of the text, scaled by its share of tokens
  int64_t targets = 0;
  double bytes = 0;  // of the text, likewise
  double seconds = 0;
};

// The first `sequences` samples of the corpus or text, all if 0. Sums each sequence in double precision, then these in their order:
// the number of replicas or stages changes no bit of it.
using Progressed = std::function<void(int64_t done)>;
Evaluation evaluate(TrainState& run, const Corpus& corpus, int64_t sequences, const Progressed& progressed = {});
Evaluation evaluate(TrainState& run, const TextStream& stream, int64_t sequences, const Progressed& progressed = {});

}  // namespace trireme
