// trireme sample: continues a text.
#include <memory>

#include "train/cli/commands.h"
#include "train/cli/loaded_model.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct SampleOptions {
  static constexpr auto name = "sample";
  static constexpr auto about = "Continues a text with a model";
  WeightWords weights;
  std::string prompt;
  SamplingOptions sampling;

  void visit(Options& o) {
    o("from", weights.from, kWeightSources).required();
    o("--prompt", prompt, "The text to continue").required();
    sampling.visit(o);
    o("--step", weights.step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.set(weights.set);
  }
};

ExitCode run_sample(const SampleOptions& options) {
  LoadedModel model(find_weights(options.weights));
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<int32_t> prompt = model.document(options.prompt);
  TextOfTokens words(tokenizer);
  for (const int32_t token : prompt) words.next(token);
  say_part(options.prompt);
  generate(model.decoder(), model.stream(), std::move(prompt), options.sampling.sampling(tokenizer), [&](int32_t token) {
    if (token == tokenizer.end_of_document()) return false;
    say_part(words.next(token));
    return true;
  });
  say("");
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> sample_command() { return make_command<SampleOptions>(run_sample); }

}  // namespace trireme
