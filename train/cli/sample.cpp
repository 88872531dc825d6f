// trireme sample: continues a text.
#include <memory>

#include "base/file.h"
#include "train/cli/commands.h"
#include "train/cli/loaded_model.h"
#include "train/telemetry/log.h"
#include "train/telemetry/readable_text.h"

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
    o("--prompt", prompt, "Text to continue; '-' reads standard input, without the line end at its end").required();
    sampling.visit(o);
    o("--step", weights.step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.set(weights.set);
  }
  static std::string footer() {
    return "Text appears as it is generated, until the model ends the document or --tokens are reached. Control characters are\n"
           "shown as ^X. With equal options the text is the same in every run.";
  }
};

std::string standard_input() {
  File input = File::standard_input();
  std::string all, block(64 << 10, '\0');
  for (int64_t count; (count = input.read(block.data(), std::ssize(block))) > 0;) all.append(block, 0, static_cast<size_t>(count));
  if (all.ends_with('\n')) all.pop_back();
  if (all.ends_with('\r')) all.pop_back();
  return all;
}

ExitCode run_sample(const SampleOptions& options) {
  LoadedModel model(find_weights(options.weights));
  const Tokenizer& tokenizer = model.tokenizer();
  const std::string text_before = options.prompt == "-" ? standard_input() : options.prompt;
  std::vector<int32_t> prompt = model.document(text_before);
  TextOfTokens words(tokenizer);
  for (const int32_t token : prompt) words.next(token);
  if (const auto all = std::ssize(prompt); cut_to_context(prompt, model.decoder().capacity()))
    complain(std::string(text("--prompt: its ", all, " tokens exceed the context of ", model.decoder().capacity(), "; the last ",
                              prompt.size(), " are used")));
  ReadableText readable(Controls::show);
  say_part(readable.next(text_before));
  generate(model.decoder(), model.stream(), std::move(prompt), options.sampling.sampling(tokenizer), [&](int32_t token) {
    if (token == tokenizer.end_of_document()) return false;
    say_part(readable.next(words.next(token)));
    return true;
  });
  say_part(readable.finish() + "\n");
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> sample_command() { return make_command<SampleOptions>(run_sample); }

}  // namespace trireme
