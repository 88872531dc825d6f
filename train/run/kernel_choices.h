// RUN/kernels.json: the algorithms that a run has chosen by trial on its GPU. The last bits of a step depend on them, so a resumed
// run keeps them unless the GPU or the library is another.
#pragma once

#include <string>
#include <vector>

#include "kernels/tune/attention_choice.h"
#include "kernels/tune/product_choice.h"
#include "parallel/mesh.h"
#include "train/config/config.h"
#include "train/step/plan.h"

namespace trireme {

struct KernelChoices {
  std::string machine{};  // GPU and libraries that they are of
  ProductChoices products{};
  AttentionChoices attention{};
};

// The file's text, and back; other text gives no choices.
std::string to_json(const KernelChoices& choices);
KernelChoices kernel_choices(const std::string& json);

// Facts that choices go by: those kept in `directory`, if any, and the mean tokens of a document; 0: unknown.
struct ChoiceFacts {
  std::string directory{};
  int64_t document = 0;
};

// All ranks together, before the run takes its memory: what is kept in the directory, the first rank's word for all, and of what is
// not kept the fastest. From here on the device does it so. Anywhere but on a GPU, and where results are to be the same on every
// mesh, nothing is chosen.
struct ChosenKernels {
  std::string json{};                // for keep_choices()
  std::vector<std::string> notes{};  // for people: what was tried
};
ChosenKernels choose_kernels(const RunConfig& config, const Plan& plan, const Mesh& mesh, Device& device, const ChoiceFacts& facts);
// Writes the file. On the first rank, which may write into the run.
void keep_choices(const ChosenKernels& chosen, const std::string& directory);

}  // namespace trireme
