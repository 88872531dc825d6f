// Choice of attention kernels for each shape: ours, or a library's fused ones (cuDNN's) if they are
// available and support it. The choice is made before the first step. It is plain data, so that a
// run can keep it: the last bits of the two differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/config.h"
#include "kernels/device.h"

namespace trireme {

// Seconds that an attention of this shape takes with the fused kernels or with ours. With document
// masks, documents have `document` tokens on average, 0 for a quarter of a row: ours leave keys of
// other documents out.
using AttentionTimer = std::function<double(Device&, const AttentionShape&, bool fused)>;
double time_attention(Device& device, const AttentionShape& shape, bool fused, int64_t document);

// True if the fused kernels give the same bits each time, and our results up to rounding.
bool fused_agrees(Device& device, const AttentionShape& shape);

struct ChosenAttention {
  AttentionChoices choices{};          // for all shapes asked for; empty without a GPU or library, or if ours are wanted
  std::vector<std::string> reasons{};  // a line for each, for the user
};

// Chooses kernels for the attentions of a run. `wanted` automatic: the faster by `time`; cudnn:
// fused if possible; ours: ours. Takes memory of `device`, which must not be frozen, and its
// compute lane; device.attention() does not change.
ChosenAttention choose_attention(Device& device, AttentionKernels wanted, const std::vector<AttentionShape>& shapes,
                                 const AttentionTimer& time);

}  // namespace trireme
