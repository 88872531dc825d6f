// The loss on held-out text.
#pragma once

#include "train/step.h"

namespace trireme {

struct Evaluation {
  float loss = 0;           // nats per target token
  float bits_per_byte = 0;  // loss in bits over the UTF-8 bytes of the text; of a part of the corpus, scaled by its share of tokens
  int64_t targets = 0;
  double seconds = 0;
};

// The first `sequences` samples of the corpus, all if 0. Uses the Stage's activations; changes no weight.
Evaluation evaluate(Run& run, const Corpus& corpus, int64_t sequences);

}  // namespace trireme
