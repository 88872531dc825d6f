// Evaluation: the loss of a model on sequences it is not trained on. All ranks of the mesh call these functions together.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "data/loader/corpus.h"
#include "data/loader/text_stream.h"
#include "train/step/step.h"

namespace trireme {

// Sequences to predict, of the Stage's context, by number. A target below 0 is not predicted.
struct Sequences {
  int64_t count;
  std::function<void(int64_t sequence, const SampleRow& row)> read;
};

struct PredictHooks {
  // Called for each sequence of this replica, on ranks with the model's last part: its targets [T], and their losses [T] in nats,
  // without z-loss.
  std::function<void(int64_t sequence, std::span<const int32_t> targets, std::span<const float> losses)> report;
  // Called on all ranks between messages, after about this many sequences of all replicas. If all ranks throw, the rest is left.
  std::function<void(int64_t done)> progressed{};
};

// Runs the model over the sequences; each replica takes a part. Overwrites the Stage's activations; changes no weight.
void predict(TrainState& run, const Sequences& sequences, const PredictHooks& hooks);

// How many of the samples an evaluation reads: the first `wanted`; 0: all.
inline int64_t evaluated_sequences(int64_t wanted, int64_t samples) { return wanted > 0 ? std::min(wanted, samples) : samples; }

struct Evaluation {
  double loss = 0;           // nats per target token
  double bits_per_byte = 0;  // loss of all targets in bits, over `bytes`
  int64_t targets = 0;
  double bytes = 0;  // UTF-8 bytes of the text; of a part of it, in proportion to its tokens
  double seconds = 0;
};

// Evaluates the first `sequences` samples of the corpus or text; 0: all. Sums each sequence in double precision, and then the
// sequences in their order, so the number of replicas or stages does not change a bit.
using Progressed = std::function<void(int64_t done)>;
Evaluation evaluate(TrainState& run, const Corpus& corpus, int64_t sequences, const Progressed& progressed = {});
Evaluation evaluate(TrainState& run, const TextStream& stream, int64_t sequences, const Progressed& progressed = {});

}  // namespace trireme
