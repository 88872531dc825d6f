#include "train/eval/conversation.h"

#include <algorithm>

namespace trireme {

Conversation::Conversation(const ChatTemplate& form, const Tokenizer& tokenizer, std::vector<int32_t> begin,
                           const std::string& system)
    : form_(form), tokenizer_(tokenizer), begin_(std::move(begin)) {
  if (!system.empty()) messages_.push_back({.role = "system", .content = system});
  first_ = messages_.size();
}

void Conversation::encode() {
  const std::vector<LinePart> parts = form_.render(messages_, true);
  tokens_.clear();
  std::vector<uint8_t> trained;
  encode_parts(parts, tokenizer_, tokens_, trained);
  // A form that writes the token of the beginning itself has it once.
  if (!begin_.empty() && (tokens_.empty() || tokens_.front() != begin_.front()))
    tokens_.insert(tokens_.begin(), begin_.begin(), begin_.end());
}

std::optional<int64_t> Conversation::ask(const std::string& message, int64_t limit) {
  std::vector<ChatMessage> before = messages_;
  messages_.push_back({.role = "user", .content = message});
  int64_t forgotten = 0;
  for (encode(); std::ssize(tokens_) > limit; encode()) {
    if (messages_.size() == first_ + 1) {
      messages_ = std::move(before);
      return std::nullopt;
    }
    const auto oldest = messages_.begin() + static_cast<std::ptrdiff_t>(first_);
    messages_.erase(oldest, oldest + (oldest[1].role == "assistant" ? 2 : 1));
    ++forgotten;
  }
  return forgotten;
}

void Conversation::answer(const std::string& text) { messages_.push_back({.role = "assistant", .content = text}); }

bool AnswerText::take(int32_t token) {
  if (std::ranges::find(ends_, token) != ends_.end()) return false;
  text_ += tokenizer_.bytes_of(token);
  if (end_text_.empty()) return true;
  const size_t from = handed_ >= end_text_.size() ? handed_ - end_text_.size() : 0;
  const size_t end = text_.find(end_text_, from);
  if (end == std::string::npos) return true;
  text_.resize(std::max(end, handed_));
  end_text_.clear();
  return false;
}

std::string AnswerText::fresh(bool all) {
  size_t end = text_.size();
  if (!all && !end_text_.empty()) {
    // The longest end of the text that `end_text` begins with is held back.
    size_t held = std::min(end_text_.size() - 1, end - handed_);
    while (held > 0 && !end_text_.starts_with(std::string_view(text_).substr(end - held))) --held;
    end -= held;
  }
  const std::string more = text_.substr(handed_, end - handed_);
  handed_ = end;
  return more;
}

}  // namespace trireme
