// Few-shot prompts: a description, solved examples and the question, as lm-evaluation-harness 0.4 words and chooses them.
//
// MMLU's description names the subject and stands there at 0 shots, too. Its examples are the first ones of the question's
// subject. Every other format samples examples for each question, in the file's order, with Python's random.Random(1234): the
// harness's default. Blank lines separate examples. A question is never its own example.
#pragma once

#include <string>
#include <vector>

#include "data/documents/questions.h"

namespace trireme {

struct FewShot {
  int64_t shots = 0;          // examples before each question
  std::string examples = {};  // the file that they come from; empty: the questions themselves
};

// Completes the contexts of the questions of file `path`. DataError if the examples are too few or of another format.
void complete_prompts(std::vector<Question>& questions, const std::string& path, const FewShot& few);

}  // namespace trireme
