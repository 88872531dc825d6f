// Multiple-choice questions, read from JSON lines. There are five formats:
//
//   {"context": "...", "choices": ["...", ...], "answer": 0}
//   HellaSwag: {"ctx" (or "ctx_a" and "ctx_b"), "endings": [...], "label": 0}; "activity_label" precedes the context
//   ARC:       {"question": "...", "choices": {"text": [...], "label": ["A", ...]}, "answerKey": "A"}
//   MMLU:      {"question": "...", "subject": "...", "choices": ["...", ...], "answer": 0}; the choices are A, B, ...
//   PIQA:      {"goal": "...", "sol1": "...", "sol2": "...", "label": 0}
// Contexts are worded as lm-evaluation-harness words them (https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks). A
// space separates context and choice. The first format is used as it is. few_shot.h completes the prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trireme {

enum class QuestionFormat { plain, hellaswag, arc, mmlu, piqa };

struct Choice {
  std::string text;    // what follows the context, with the space that separates them
  int64_t characters;  // of the choice alone, in Unicode code points
};

struct Question {
  std::string context;
  std::vector<Choice> choices;  // at least two
  size_t answer;                // index of the right one
  int64_t line;                 // of the file, from 1
  QuestionFormat format = QuestionFormat::plain;
  std::string subject = {};  // MMLU's, e.g. "abstract_algebra"
  uint64_t line_digest = 0;  // of the line's text: copies have the same
};

// Reads a whole file; packed ones are unpacked, blank lines are skipped. DataError lists the first 20 lines that are in none of
// the formats, one line each; one line in all if the file does not hold JSON lines.
std::vector<Question> read_questions(const std::string& path);

// Tokens of a context and its continuation, split as lm-evaluation-harness splits them: white space at the end of the context
// belongs to the continuation, and the continuation begins after as many tokens as the context alone has. It has at least one
// token. An end_of_document replaces an empty context.
struct Continuation {
  std::vector<int32_t> tokens;
  int64_t first;  // index of the continuation's first token, > 0
};
Continuation encode_continuation(const Tokenizer& tokenizer, const std::string& context, const std::string& continuation);

}  // namespace trireme
