// Conversation: the messages of a chat as tokens that fit a model's context. AnswerText: an answer's text, up to what ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents/chat_template.h"

namespace trireme {

class Conversation {
 public:
  // `begin` stands in front of all messages (it may be empty). An empty `system` adds no message.
  Conversation(const ChatTemplate& form, const Tokenizer& tokenizer, std::vector<int32_t> begin, const std::string& system);

  // Adds a user's message and forgets the oldest turns until all is at most `limit` tokens. Returns how many turns it forgot;
  // nullopt, and the message is not added, when it alone exceeds the limit.
  std::optional<int64_t> ask(const std::string& message, int64_t limit);
  // The tokens up to where the next answer begins.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  void answer(const std::string& text);  // adds the assistant's message

 private:
  void encode();

  const ChatTemplate& form_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> begin_, tokens_;
  std::vector<ChatMessage> messages_;
  size_t first_;  // message after the system's
};

class AnswerText {
 public:
  // Ends at one of the tokens `ends`, or where the text has `end_text` (empty: nowhere), of which nothing is handed out.
  AnswerText(const Tokenizer& tokenizer, std::vector<int32_t> ends, std::string end_text)
      : tokenizer_(tokenizer), ends_(std::move(ends)), end_text_(std::move(end_text)) {}

  // Takes the next token; false: the answer ended before it.
  bool take(int32_t token);
  // The bytes that cannot be the beginning of `end_text`, since the last call; with `all`, also those that could.
  std::string fresh(bool all = false);

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ends_;
  std::string end_text_, text_;
  size_t handed_ = 0;
};

}  // namespace trireme
