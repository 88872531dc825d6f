// Which kernels compute which attention: our own, or a library's fused ones (cuDNN's) where it is here and takes the shape. The
// choice is made before the first step and is plain data, so that a run can keep it: the last bits of the two differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/config.h"
#include "kernels/device.h"

namespace trireme {

// Seconds that an attention of this shape takes, by the fused kernels or by ours.
using AttentionTimer = std::function<double(Device&, const AttentionShape&, bool fused)>;
double time_attention(Device& device, const AttentionShape& shape, bool fused);

// Whether the fused kernels give the same bits each time, and our results but for rounding.
bool fused_agrees(Device& device, const AttentionShape& shape);

struct ChosenAttention {
  AttentionChoices choices{};          // of all that were asked for; none without a GPU or library, or where ours are wanted
  std::vector<std::string> reasons{};  // for people: a line for each
};

// Of the attentions of a run. `wanted` automatic: the faster by `time`; cudnn: fused wherever they can be; ours: ours. Takes memory
// of `device`, which is not frozen, and its compute lane; device.attention() is as before.
ChosenAttention choose_attention(Device& device, AttentionKernels wanted, const std::vector<AttentionShape>& shapes,
                                 const AttentionTimer& time = time_attention);

}  // namespace trireme
