// trireme sample: continues a text.
#include <memory>

#include "base/clock.h"
#include "base/file.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/cli/loaded_model.h"
#include "train/telemetry/log.h"
#include "train/telemetry/readable_text.h"

namespace trireme {
namespace {

struct SampleOptions {
  static constexpr auto name = "sample";
  static constexpr auto about = "Continue a text with a model";
  WeightWords weights;
  std::string prompt, json;
  SamplingOptions sampling;

  void visit(Options& o) {
    o("from", weights.from, kWeightSources).required();
    o("--prompt", prompt, "Text to continue; '-' reads standard input, without the line end at its end").required();
    sampling.visit(o);
    o("--step", weights.step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.json(json);
    o.set(weights.set);
  }
  static std::string footer() {
    return "Text appears as it is generated, until the model ends the document or --tokens are reached. Control characters are "
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

// Generates and prints as it goes. Returns the facts for --json.
Json continue_text(LoadedModel& model, const SampleOptions& options, const std::string& before) {
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<int32_t> prompt = model.document(before);
  TextOfTokens words(tokenizer);
  for (const int32_t token : prompt) words.next(token);
  const int64_t all = std::ssize(prompt), context = model.decoder().capacity();
  if (cut_to_context(prompt, context, options.sampling.tokens))
    complain(std::string(text("--prompt: its ", all, " tokens and --tokens ", options.sampling.tokens, " exceed the context of ",
                              context, "; the last ", prompt.size(), " are used")));
  const int64_t used = std::ssize(prompt);
  ReadableText shown(Controls::show), before_kept(Controls::keep), kept(Controls::keep);
  say_part(shown.next(before));
  std::string whole;
  int64_t tokens = 0;
  bool ended = false;
  const auto begin = Clock::now();
  generate(model.decoder(), model.stream(), std::move(prompt), options.sampling.sampling(tokenizer), [&](int32_t token) {
    ended = token == tokenizer.end_of_document();
    if (ended) return false;
    const std::string_view bytes = words.next(token);
    say_part(shown.next(bytes));
    whole += kept.next(bytes);
    ++tokens;
    return true;
  });
  const double seconds = seconds_since(begin);
  say_part(shown.finish() + "\n");
  whole += kept.finish();
  return {{"prompt", before_kept.next(before) + before_kept.finish()},
          {"prompt_tokens", used},
          {"text", whole},
          {"tokens", tokens},
          {"end_of_document", ended},
          {"seconds", seconds},
          {"tokens_per_second", static_cast<double>(tokens) / seconds}};
}

ExitCode run_sample(const SampleOptions& options) {
  if (!is_only_process("sample")) return ExitCode::usage;  // rank 0 has said why
  JsonOutput json(options.json);
  const WeightSource source = find_weights(options.sampling.words(options.weights));
  LoadedModel model(source, options.sampling.int8());
  Json found{{"weights", source.directory()}};
  found.update(continue_text(model, options, options.prompt == "-" ? standard_input() : options.prompt));
  json.write(found);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> sample_command() { return make_command<SampleOptions>(run_sample); }

}  // namespace trireme
