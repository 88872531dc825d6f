// JSON lines as documents: a line's text, a prompt and its response, or the messages of a conversation.
//
// Prompts and responses follow one another as they are, or in the form of a chat template. Conversations always have the form of a
// template (chat_template.h). Targets are the responses, the assistant's contents, and the tokens that end them.
#pragma once

#include <string>
#include <vector>

#include "data/documents/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct DocumentOptions {
  std::string field = "text";              // of a JSON line
  bool skip_bad = true;                    // a problem loses its document; otherwise it is thrown as a DataError
  std::string stdin_name = "stdin.jsonl";  // the name of "-" as if it were a file
  const Tokenizer* tokenizer = nullptr;    // says where long documents are cut; without one it is where no word is
  // Instead of `field`: prompt and response, with or without input; or messages, [{"role": "user", "content": "..."}, ...] or
  // [{"from": "human", "value": "..."}, ...]. Files that are not JSON lines are a problem then.
  std::string prompt = {}, input = {}, response = {}, messages = {};
  std::string chat_template = {};  // a name of ChatTemplate's; "": template_of() chooses

  bool has_prompts() const { return !prompt.empty() || !messages.empty(); }
};

// The name of the template for prompts, responses and messages: `chat_template` if it is set, else trireme for messages, alpaca for
// prompts with an input, and "", no template, for prompts without.
std::string template_of(const DocumentOptions& options);

// A problem in a line; thrown while the line is read.
struct BadLine {
  std::string problem;
};

struct ParsedLine {
  std::vector<LinePart> parts{};  // empty: the line holds no document
  std::string problem{};          // or the reason why it is refused
  bool prompted = false;          // words stand in front of its first response, beside those of the template
};

ParsedLine parse_line(const std::string& line, const DocumentOptions& options);

}  // namespace trireme
