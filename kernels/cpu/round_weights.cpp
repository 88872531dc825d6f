#include "kernels/ops/round_weights.h"

#include "kernels/cpu/simd.h"
#include "kernels/cpu/stochastic.h"

namespace trireme {

void launch(const Cpu&, const RoundWeights& op) {
  for (const RoundedPart& part : op.parts)
    for_blocks(part.master.size(), kBlock, [&](int64_t begin, int64_t end) {
      round_stochastically(part.weight.as<Bf16>() + begin, part.master.as<float>() + begin, end - begin,
                           RandomBits(part.whole, begin, op.step));
    });
}

void launch(const Cpu&, const RoundWeightsTable&) {}

}  // namespace trireme
