// trireme sample: continues texts.
#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/number_format.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/cli/loaded_model.h"
#include "train/cli/prompts.h"
#include "train/telemetry/log.h"
#include "train/telemetry/readable_text.h"

namespace trireme {
namespace {

struct SampleOptions {
  static constexpr auto name = "sample";
  static constexpr auto about = "Continue texts with a model";
  WeightWords weights;
  std::vector<std::string> prompt{};
  std::string prompts, json;
  int64_t samples = 1, batch = 16;
  SamplingOptions sampling;

  void visit(Options& o) {
    o("from", weights.from, kWeightSources).required();
    o("--prompt", prompt,
      "Text to continue; '-' reads standard input, without the line end at its end; may be repeated for several texts")
        .repeated();
    o("--prompts", prompts,
      "File of texts to continue: its lines, or the field prompt of JSON lines if its name ends in .jsonl; '-': lines of standard "
      "input");
    o("--samples", samples, "Texts for each prompt; the second one is that of the next seed", between(1, 10000));
    o("--batch", batch, "Texts to generate at the same time, at most; each needs memory for its keys and values", at_least(1));
    sampling.visit(o);
    o("--step", weights.step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.json(json);
    o.set(weights.set);
  }
  static std::string footer() {
    return "Text appears as it is generated, until the model ends the document or --tokens are reached. Control characters are "
           "shown as ^X. With equal options the text is the same in every run, alone or beside others. JSON of several texts is a "
           "line for each.";
  }
};

// A text that is being made: the prompt, and what follows it.
class MadeText {
 public:
  MadeText(const Tokenizer& tokenizer, const std::string& prompt, std::span<const int32_t> tokens)
      : end_(tokenizer.end_of_document()), words_(tokenizer) {
    for (const int32_t token : tokens) words_.next(token);
    fresh_ = shown_.next(prompt);
    ReadableText kept(Controls::keep);
    prompt_ = kept.next(prompt) + kept.finish();
  }

  // False: the token ends the text.
  bool take(int32_t token) {
    ended_ = token == end_;
    if (ended_) return false;
    const std::string_view bytes = words_.next(token);
    fresh_ += shown_.next(bytes);
    text_ += kept_.next(bytes);
    ++tokens_;
    return true;
  }

  void finish() { fresh_ += shown_.finish() + "\n", text_ += kept_.finish(), finished_ = true; }
  bool finished() const { return finished_; }
  int64_t tokens() const { return tokens_; }

  // Text for a terminal since the last call.
  std::string fresh() { return std::exchange(fresh_, ""); }
  Json facts() const { return {{"prompt", prompt_}, {"text", text_}, {"tokens", tokens_}, {"end_of_document", ended_}}; }

 private:
  int32_t end_;
  TextOfTokens words_;
  ReadableText shown_{Controls::show}, kept_{Controls::keep};
  std::string prompt_, text_, fresh_;
  int64_t tokens_ = 0;
  bool ended_ = false, finished_ = false;
};

// The texts to make, in order: all of the first prompt, then of the second, and so on.
class Texts {
 public:
  Texts(const WeightSource& source, const SampleOptions& options)
      : options_(options), source_(source), tokenizer_(source), prompts_(read_prompts(options.prompt, options.prompts)) {
    if (options.sampling.seed > std::numeric_limits<int64_t>::max() - options.samples)
      throw ConfigError(text("--seed ", options.sampling.seed, ": too large for --samples ", options.samples));
    for (const Prompt& prompt : prompts_) add(prompt);
  }

  // One alone has an object of JSON, several have lines.
  void make(JsonOutput& json) {
    LoadedModel model(source_, options_.sampling.int8(),
                      {.sequences = std::min(options_.batch, std::ssize(requests_)),
                       .tokens = longest_ + std::min(options_.sampling.tokens, source_.config.model.context)});
    const auto begin = Clock::now();
    generate(model.decoder(), model.stream(), requests_,
             {.token =
                  [&](size_t i, int32_t token) {
                    const bool more = made_[i].take(token);
                    show(json);
                    return more;
                  },
              .done =
                  [&](size_t i) {
                    made_[i].finish();
                    show(json);
                  }});
    finish(json, seconds_since(begin));
  }

 private:
  void add(const Prompt& prompt) {
    const SamplingOptions& wanted = options_.sampling;
    const std::vector<int32_t> tokens = tokenizer_.document(prompt.text);
    const int64_t all = std::ssize(tokens), context = source_.config.model.context;
    std::vector<int32_t> fed = tokens;
    if (cut_to_context(fed, context, wanted.tokens))
      complain(std::string(text(prompt.name, ": its ", all, " tokens and --tokens ", wanted.tokens, " exceed the context of ",
                                context, "; the last ", fed.size(), " are used")));
    longest_ = std::max(longest_, std::ssize(fed));
    for (int64_t i = 0; i < options_.samples; ++i) {
      Sampling sampling = wanted.sampling(tokenizer_.tokenizer());
      sampling.seed += static_cast<uint64_t>(i);
      requests_.push_back({.prompt = fed, .sampling = sampling});
      made_.emplace_back(tokenizer_.tokenizer(), prompt.text, tokens);
    }
  }

  // Whether JSON is a line for each text.
  bool in_lines() const { return several() || !options_.prompts.empty(); }
  bool several() const { return made_.size() > 1; }

  Json facts_of(size_t i) const {
    Json facts{{"weights", source_.directory()},
               {"prompt_tokens", std::ssize(requests_[i].prompt)},
               {"seed", static_cast<int64_t>(requests_[i].sampling.seed)}};
    facts.update(made_[i].facts());
    return facts;
  }

  // Prints the first text that has not ended, as it grows, and those after it when it has.
  void show(JsonOutput& json) {
    for (; shown_ < made_.size(); ++shown_, begun_ = false) {
      if (several() && !std::exchange(begun_, true))
        say(std::string(
            text(shown_ > 0 ? "\n" : "", "--- ", shown_ + 1, " of ", made_.size(), ", seed ", requests_[shown_].sampling.seed)));
      say_part(made_[shown_].fresh());
      if (!made_[shown_].finished()) return;
      if (in_lines()) json.write_line(facts_of(shown_));
    }
  }

  void finish(JsonOutput& json, double seconds) {
    const int64_t tokens =
        std::accumulate(made_.begin(), made_.end(), int64_t{0}, [](int64_t sum, const MadeText& t) { return sum + t.tokens(); });
    const double rate = static_cast<double>(tokens) / seconds;
    if (in_lines())
      return complain(std::string(
          text(made_.size(), " texts, ", tokens, " tokens in ", human_seconds(seconds), ": ", fixed(rate, 0), " tokens/s")));
    Json facts = facts_of(0);
    facts.update({{"seconds", seconds}, {"tokens_per_second", rate}});
    json.write(facts);
  }

  const SampleOptions& options_;
  const WeightSource& source_;
  ModelTokenizer tokenizer_;
  std::vector<Prompt> prompts_;
  std::vector<GenerationRequest> requests_;
  std::deque<MadeText> made_;  // by request
  size_t shown_ = 0;           // the first that has not been shown whole
  bool begun_ = false;         // to show it
  int64_t longest_ = 0;        // prompt, in tokens
};

ExitCode run_sample(const SampleOptions& options) {
  if (!is_only_process("sample")) return ExitCode::usage;  // rank 0 has said why
  JsonOutput json(options.json);
  const WeightSource source = find_weights(options.sampling.words(options.weights));
  Texts(source, options).make(json);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> sample_command() { return make_command<SampleOptions>(run_sample); }

}  // namespace trireme
