// What a JSON line says of a document: its text; a prompt and the response to it; or the messages of a conversation.
//
// A conversation is rendered as plain text, each message as a line <|system|>, <|user|> or <|assistant|>, its content and the end
// of a line; in front of the line's end behind an assistant's content stands the tokenizer's end_of_document, so that what is
// learnt is where an answer ends. Targets are the assistants' contents and these ends. Behind the last answer only the end stands.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct DocumentOptions {
  std::string field = "text";              // of a JSON line
  bool skip_bad = true;                    // a problem loses its document; otherwise it is thrown as a DataError
  std::string stdin_name = "stdin.jsonl";  // what "-" would be called as a file
  const Tokenizer* tokenizer = nullptr;    // says where long documents are cut; without one it is where no word is
  // Instead of `field`, both; or `messages`: [{"role": "user", "content": "..."}, ...]. What is no JSON line is a problem then.
  std::string prompt = {}, response = {}, messages = {};

  bool has_prompts() const { return !prompt.empty() || !messages.empty(); }
};

// A stretch of a document that is encoded for itself, so that no token lies in two of them.
struct LinePart {
  std::string text;
  bool trained;            // its tokens are targets
  bool ends_turn = false;  // an end_of_document belongs to it, though the document goes on
};

// A problem in a line; thrown while the line is read.
struct BadLine {
  std::string problem;
};

struct ParsedLine {
  std::vector<LinePart> parts;  // none: no document
  std::string problem;          // or what is wrong with the line
};

ParsedLine parse_line(const std::string& line, const DocumentOptions& options);

}  // namespace trireme
