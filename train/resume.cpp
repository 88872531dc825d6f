#include "train/resume.h"

#include "kernels/check.h"

namespace trireme {
namespace {

bool changes_the_run(const std::string& difference) {
  for (const char* key : {"model.", "data.train:", "data.tokenizer:", "train.batch:", "train.seed:", "train.rounding:",
                          "kernels.dtype:", "kernels.matmul:", "kernels.bf16_layers:"})
    if (difference.starts_with(key)) return true;
  return false;
}

}  // namespace

std::vector<std::string> compare_for_resume(const RunConfig& config, const std::string& saved, bool allow) {
  std::vector<std::string> told;
  std::string refused;
  for (const std::string& difference : differences(parse_config("the checkpoint's config", saved), config)) {
    if (difference.starts_with("train.name:") || difference.starts_with("train.runs:")) continue;
    told.push_back("changed since the checkpoint: " + difference);
    if (changes_the_run(difference)) refused += difference + ": the checkpoint belongs to another run\n";
  }
  if (!refused.empty() && !allow)
    throw ConfigError(refused + "take these back, choose another train.name for a new run, or continue with --resume-allow");
  return told;
}

}  // namespace trireme
