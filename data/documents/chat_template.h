// Chat templates: a conversation written as text and special tokens, in one of four published forms.
//
// A marker such as <|im_start|> is one token if the tokenizer has a special token of that name, and else plain text. The words of a
// message are always plain text. END is the tokenizer's end_of_document. Of a conversation of user and assistant the forms make:
//
//   trireme  <|user|>\nWORDS\n<|assistant|>\nWORDS END \n<|user|>\n...
//   chatml   <|im_start|>user\nWORDS<|im_end|>\n<|im_start|>assistant\nWORDS<|im_end|>\n...
//   llama3   <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWORDS<|eot_id|><|start_header_id|>assistant...
//   alpaca   PREAMBLE\n\n### Instruction:\nWORDS\n\n### Response:\nWORDS END \n\n### Instruction:\n...
//
// <|begin_of_text|> is left out if it is not a special token. PREAMBLE is the system message, or the words of the Alpaca data. The
// other forms write a system message as one more role. No form trims the words or adds a system message of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/shard/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// A stretch of a document that is encoded separately, so that no token crosses its ends.
struct LinePart {
  std::string text{};
  bool trained = false;                 // its tokens are targets
  bool ends_turn = false;               // an end_of_document belongs to it, though the document continues
  std::optional<int32_t> special = {};  // this one token, of which `text` is the name
};

struct ChatMessage {
  std::string role, content;  // role: system, user or assistant
};

class ChatTemplate {
 public:
  static constexpr std::array kNames{"trireme", "chatml", "llama3", "alpaca"};

  // ConfigError, with all names, for a `name` that is not one of them. Without a tokenizer all markers are text.
  explicit ChatTemplate(const std::string& name, const Tokenizer* tokenizer = nullptr);
  const std::string& name() const { return name_; }

  // The messages in order; with `answer` the beginning of the assistant's next message follows. The contents and ends of the
  // assistant's messages are targets. After the last of them the form's own end stands too.
  std::vector<LinePart> render(std::span<const ChatMessage> messages, bool answer = false) const;
  // The messages up to the last of the assistant as a document, whose end_of_document is written elsewhere. Empty if there is none.
  std::vector<LinePart> document(std::span<const ChatMessage> messages) const;
  // The end of the assistant's messages: its token is in `special`, unless it is text.
  LinePart end_of_turn() const;
  // Empty, or why the form cannot write message `i`.
  std::string problem_of(const ChatMessage& message, size_t i) const;

  // The words of a user's message that has an input besides its instruction.
  std::string with_input(const std::string& instruction, const std::string& input) const;

 private:
  class Writer;
  enum class Form { trireme, chatml, llama3, alpaca };
  void write(Writer& out, const ChatMessage& message) const;
  void begin(Writer& out, const std::string& role) const;

  std::string name_;
  Form form_ = Form::trireme;
  const Tokenizer* tokenizer_;
};

// Appends the tokens of the parts, and to `trained` 1 or 0 of each token.
void encode_parts(std::span<const LinePart> parts, const Tokenizer& tokenizer, std::vector<int32_t>& tokens,
                  std::vector<uint8_t>& trained);

// Dataset of a shard (u8) with the name of the template that its conversations were written in.
inline constexpr const char* kChatTemplateDataset = "chat_template";
// nullopt: the shard has no conversations, or was made before templates had names.
std::optional<std::string> chat_template_of(const ShardReader& shard);

}  // namespace trireme
