// Questions of multiple choice, read from JSON lines of five shapes:
//   {"context": "...", "choices": ["...", ...], "answer": 0}
//   HellaSwag: {"ctx" (or "ctx_a" and "ctx_b"), "endings": [...], "label": 0}, with "activity_label" in front if it is there
//   ARC:       {"question": "...", "choices": {"text": [...], "label": ["A", ...]}, "answerKey": "A"}
//   MMLU:      {"question": "...", "choices": ["...", ...], "answer": 0}, of which the letters A, B, ... are the choices
//   PIQA:      {"goal": "...", "sol1": "...", "sol2": "...", "label": 0}
// Contexts are worded as lm-evaluation-harness words them (https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks), and
// a space stands between context and choice; in the first shape context and choice are taken as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct Choice {
  std::string text;    // what follows the context, a space in front of it included
  int64_t characters;  // of the choice alone, in Unicode code points
};

struct Question {
  std::string context;
  std::vector<Choice> choices;  // two, at least
  size_t answer;                // index of the right one
  int64_t line;                 // of the file
};

// All of a file; .gz and .zst are unpacked. DataError with the first 20 problems, a line each, when a line is none of these; lines
// of nothing but white space are passed over.
std::vector<Question> read_questions(const std::string& path);

// The tokens of a context and its continuation. As in lm-evaluation-harness, white space at the end of the context belongs to the
// continuation, and the tokens of the whole behind as many as the context alone has are the continuation's: at least the last
// one. Instead of an empty context an end_of_document stands in front.
struct Continuation {
  std::vector<int32_t> tokens;
  int64_t first;  // of the continuation, > 0
};
Continuation encode_continuation(const Tokenizer& tokenizer, const std::string& context, const std::string& continuation);

}  // namespace trireme
