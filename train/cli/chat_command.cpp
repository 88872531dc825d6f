// trireme chat: talks with a model.
#include <algorithm>
#include <memory>

#include "base/json.h"
#include "train/cli/chat_form.h"
#include "train/cli/commands.h"
#include "train/cli/loaded_model.h"
#include "train/eval/conversation.h"
#include "train/health/interrupts.h"
#include "train/hub/published_config.h"
#include "train/telemetry/line_reader.h"
#include "train/telemetry/log.h"
#include "train/telemetry/readable_text.h"

namespace trireme {
namespace {

struct ChatOptions {
  static constexpr auto name = "chat";
  static constexpr auto about = "Talk with a model, turn by turn";
  WeightWords weights;
  std::string system, form;
  SamplingOptions sampling{.tokens = 1024};

  void visit(Options& o) {
    o("from", weights.from, kWeightSources).required();
    o("--system", system, "System message, before the first turn; default: none");
    o("--chat-template", form, "Form of the turns; default: that of the run's data, or of the published model")
        .one_of({ChatTemplate::kNames.begin(), ChatTemplate::kNames.end()});
    sampling.visit(o);
    o("--step", weights.step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.set(weights.set);
  }
  static std::string footer() {
    return "Each line is a message; a backslash at its end continues it. Ctrl-C ends an answer, and between answers the chat; "
           "so does Ctrl-D. When the context is full, the oldest turns are forgotten. Messages may come from a pipe: answers go "
           "to standard output, notes to standard error.";
  }
};

// Tokens that end an answer: the end of a document or turn, the end that a published model names, and a next role's marker.
std::vector<int32_t> end_tokens(const ChatTemplate& form, const WeightSource& source, const Tokenizer& tokenizer) {
  std::vector<int32_t> ends{tokenizer.end_of_document()};
  if (const std::optional<int32_t> token = form.end_of_turn().special) ends.push_back(*token);
  for (const char* marker : {"<|user|>", "<|im_start|>", "<|start_header_id|>", "<|eot_id|>", "<|im_end|>"})
    if (const std::optional<int32_t> token = tokenizer.special_token(marker)) ends.push_back(*token);
  if (!source.checkpoint.empty()) return ends;
  const Json named = Json::parse(read_special_tokens(source.config.train.init_from + "/config.json").end);
  if (named.is_integer()) ends.push_back(named.get<int32_t>());
  if (named.is_array())
    for (const int32_t token : named.get<std::vector<int32_t>>()) ends.push_back(token);
  return ends;
}

// Text that ends an answer, besides end_tokens(): the end of a turn as text, or the next user's marker.
std::string end_text(const ChatTemplate& form) {
  const LinePart end = form.end_of_turn();
  if (!end.text.empty()) return end.special ? "" : end.text;
  return form.name() == "alpaca" ? "\n### Instruction:" : "\n<|user|>";
}

// Documents follow the end of another in training; the published forms of these names begin by themselves.
std::vector<int32_t> begin_tokens(const ChatTemplate& form, const WeightSource& source, const ModelTokenizer& model) {
  const bool alone = source.checkpoint.empty() && (form.name() == "chatml" || form.name() == "llama3");
  return alone ? std::vector<int32_t>{} : std::vector<int32_t>{model.begin_token()};
}

class Chat {
 public:
  Chat(const ChatOptions& options, const WeightSource& source, const std::string& form)
      : tokenizer_(source),
        model_(source, options.sampling.int8()),
        form_(form, &tokenizer_.tokenizer()),
        ends_(end_tokens(form_, source, tokenizer_.tokenizer())),
        sampling_(options.sampling.sampling(tokenizer_.tokenizer())),
        conversation_(form_, tokenizer_.tokenizer(), begin_tokens(form_, source, tokenizer_), options.system) {
    complain(std::string(text(source.directory(), ", chat template ", form_.name(), ", context of ", context(), " tokens")));
  }

  void answer(const std::string& message) {
    const int64_t room = std::min(sampling_.tokens, context() / 4);
    const std::optional<int64_t> forgotten = conversation_.ask(message, context() - room);
    if (!forgotten)
      return complain(std::string(text("this message does not fit: ", context() - room, " of the context's ", context(),
                                       " tokens are for messages; shorten it")));
    if (*forgotten > 0)
      complain(
          std::string(text("context full: ", *forgotten, *forgotten == 1 ? " turn" : " turns", " forgotten, the oldest first")));
    feed();
    conversation_.answer(generate_answer());
  }

  // Whether Ctrl-C was pressed since the last call.
  bool interrupted() { return interrupts_.take(); }

 private:
  int64_t context() { return model_.decoder().capacity(); }

  // Feeds what the decoder does not hold yet.
  void feed() {
    const std::vector<int32_t>& tokens = conversation_.tokens();
    const auto same = std::ranges::mismatch(held_, tokens).in1 - held_.begin();
    const int64_t kept = std::min<int64_t>(same, std::ssize(tokens) - 1);
    model_.decoder().rewind(kept);
    model_.decoder().feed(model_.stream(), std::span(tokens).subspan(static_cast<size_t>(model_.decoder().length())));
    held_ = tokens;
  }

  std::string generate_answer() {
    AnswerText words(tokenizer_.tokenizer(), ends_, end_text(form_));
    ReadableText shown(Controls::show), kept(Controls::keep);
    std::string whole;
    const auto show = [&](const std::string& fresh) {
      say_part(shown.next(fresh));
      whole += kept.next(fresh);
    };
    const GenerationEnd end = draw_tokens(model_.decoder(), model_.stream(), sampling_, drawn_, [&](int32_t token) {
      if (interrupts_.pending() || !words.take(token)) return false;
      held_.push_back(token);
      show(words.fresh());
      return true;
    });
    show(words.fresh(true));
    say_part(shown.finish() + "\n");
    if (interrupts_.take()) complain("answer ended by Ctrl-C");
    if (end == GenerationEnd::context) complain("answer ended: the context is full");
    if (end == GenerationEnd::tokens) complain(std::string(text("answer ended after --tokens ", sampling_.tokens)));
    return whole + kept.finish();
  }

  ModelTokenizer tokenizer_;
  LoadedModel model_;
  ChatTemplate form_;
  std::vector<int32_t> ends_;
  Sampling sampling_;
  Conversation conversation_;
  Interrupts interrupts_;
  std::vector<int32_t> held_;  // fed to the decoder, and the last token drawn, which is not
  int64_t drawn_ = 0;
};

ExitCode run_chat(const ChatOptions& options) {
  if (!is_only_process("chat")) return ExitCode::usage;  // rank 0 has said why
  const WeightSource source = find_weights(options.sampling.words(options.weights));
  Chat chat(options, source, options.form.empty() ? find_chat_form(source) : options.form);
  LineReader lines;
  const bool typed = LineReader::from_terminal();
  for (std::string line;;) {
    if (typed) say_part("> ");
    const LineReader::Got got = lines.next(line);
    if (got != LineReader::Got::line) break;
    if (chat.interrupted()) break;
    if (!line.empty()) chat.answer(line);
  }
  if (typed) say("");
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> chat_command() { return make_command<ChatOptions>(run_chat); }

}  // namespace trireme
