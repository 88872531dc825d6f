#include "data/documents/chat_template.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {

namespace {

// The words of Stanford's Alpaca data.
constexpr const char* kAlpaca =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";
constexpr const char* kAlpacaWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
    "appropriately completes the request.";
constexpr const char* kAlpacaInput = "\n\n### Input:\n";

}  // namespace

// Joins neighbouring text that is not trained on.
class ChatTemplate::Writer {
 public:
  explicit Writer(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  void text(const std::string& words, bool trained = false) {
    const bool joins = !parts_.empty() && !trained && !parts_.back().trained && !parts_.back().special;
    if (joins)
      parts_.back().text += words;
    else
      parts_.push_back({.text = words, .trained = trained});
  }
  void marker(const std::string& name, bool trained = false) {
    if (const std::optional<int32_t> token = special(name))
      parts_.push_back({.text = name, .trained = trained, .special = token});
    else
      text(name, trained);
  }
  void end_of_document() { parts_.back().ends_turn = true; }

  std::optional<int32_t> special(const std::string& name) const {
    return tokenizer_ != nullptr ? tokenizer_->special_token(name) : std::nullopt;
  }
  std::vector<LinePart> take() { return std::move(parts_); }

 private:
  const Tokenizer* tokenizer_;
  std::vector<LinePart> parts_;
};

ChatTemplate::ChatTemplate(const std::string& name, const Tokenizer* tokenizer) : name_(name), tokenizer_(tokenizer) {
  const auto* const known = std::ranges::find(kNames, name);
  if (known == kNames.end()) throw ConfigError("chat template '" + name + "': must be one of trireme, chatml, llama3 and alpaca");
  form_ = static_cast<Form>(known - kNames.begin());
}

void ChatTemplate::begin(Writer& out, const std::string& role) const {
  switch (form_) {
    case Form::trireme:
      out.marker("<|" + role + "|>");
      return out.text("\n");
    case Form::chatml:
      out.marker("<|im_start|>");
      return out.text(role + "\n");
    case Form::llama3:
      out.marker("<|start_header_id|>");
      out.text(role);
      out.marker("<|end_header_id|>");
      return out.text("\n\n");
    case Form::alpaca:
      return out.text(role == "assistant" ? "### Response:\n" : role == "user" ? "### Instruction:\n" : "");
  }
}

void ChatTemplate::write(Writer& out, const ChatMessage& message) const {
  const bool answers = message.role == "assistant";
  begin(out, message.role);
  out.text(message.content, answers);
  switch (form_) {
    case Form::trireme:
      if (answers) out.end_of_document();
      return out.text("\n");
    case Form::chatml:
      out.marker("<|im_end|>", answers);
      return out.text("\n");
    case Form::llama3:
      return out.marker("<|eot_id|>", answers);
    case Form::alpaca:
      if (answers) out.end_of_document();
      return out.text("\n\n");
  }
}

std::vector<LinePart> ChatTemplate::render(std::span<const ChatMessage> messages, bool answer) const {
  Writer out(tokenizer_);
  if (form_ == Form::llama3 && out.special("<|begin_of_text|>")) out.marker("<|begin_of_text|>");
  if (form_ == Form::alpaca && !messages.empty() && messages.front().role != "system") {
    const bool has_input = messages.front().content.find(kAlpacaInput) != std::string::npos;
    out.text(std::string(has_input ? kAlpacaWithInput : kAlpaca) + "\n\n");
  }
  for (const ChatMessage& message : messages) write(out, message);
  if (answer) begin(out, "assistant");
  return out.take();
}

std::vector<LinePart> ChatTemplate::document(std::span<const ChatMessage> messages) const {
  while (!messages.empty() && messages.back().role != "assistant") messages = messages.first(messages.size() - 1);
  if (messages.empty()) return {};
  std::vector<LinePart> parts = render(messages);
  if (const bool ends_turn = parts.size() > 1 && parts[parts.size() - 2].ends_turn; ends_turn) {
    parts.pop_back();  // the line's end after END
    parts.back().ends_turn = false;
  }
  return parts;
}

LinePart ChatTemplate::end_of_turn() const {
  const Writer out(tokenizer_);
  if (form_ == Form::chatml) return {.text = "<|im_end|>", .special = out.special("<|im_end|>")};
  if (form_ == Form::llama3) return {.text = "<|eot_id|>", .special = out.special("<|eot_id|>")};
  return {.special = tokenizer_ != nullptr ? std::optional(tokenizer_->end_of_document()) : std::nullopt};
}

std::string ChatTemplate::problem_of(const ChatMessage& message, size_t i) const {
  if (form_ == Form::alpaca && i > 0 && message.role == "system")
    return "is a system message: with --chat-template alpaca only the first message can be one";
  return {};
}

std::string ChatTemplate::with_input(const std::string& instruction, const std::string& input) const {
  if (input.empty()) return instruction;
  return instruction + (form_ == Form::alpaca ? kAlpacaInput : "\n") + input;
}

void encode_parts(std::span<const LinePart> parts, const Tokenizer& tokenizer, std::vector<int32_t>& tokens,
                  std::vector<uint8_t>& trained) {
  for (const LinePart& part : parts) {
    if (part.special)
      tokens.push_back(*part.special);
    else if (&part == &parts.front())
      tokenizer.encode(part.text, tokens);
    else
      tokenizer.encode_rest(part.text, tokens);
    if (part.ends_turn) tokens.push_back(tokenizer.end_of_document());
    trained.resize(tokens.size(), part.trained ? 1 : 0);
  }
}

std::optional<std::string> chat_template_of(const ShardReader& shard) {
  const auto bytes = shard.read_more(kChatTemplateDataset, Hdf5Type::u8);
  if (!bytes) return std::nullopt;
  std::string name;
  for (const std::byte byte : *bytes) name += static_cast<char>(byte);
  if (std::ranges::find(ChatTemplate::kNames, name) == ChatTemplate::kNames.end())
    throw DataError(shard.path() + ": its chat template '" + name + "' is unknown to this version");
  return name;
}

}  // namespace trireme
