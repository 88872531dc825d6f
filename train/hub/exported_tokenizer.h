// The tokenizer files of an exported model.
#pragma once

#include <string>

#include "train/config/config.h"
#include "train/hub/published_config.h"

namespace trireme {

struct TokenizerWarnings {
  std::string missing{};  // files; "": none
  std::string doubt{};    // the begin of texts in the training data is not known; "": it is
};

// Writes the files of the tokenizer at `path` ("none" or "": nothing) into the directory `output`, and sets the special tokens that
// the model's configs name. A tokenizer.json begins texts as the published model that the run began with, or else as the documents
// of the training data.
TokenizerWarnings write_tokenizer(const RunConfig& config, const std::string& path, const std::string& output,
                                  SpecialTokens& tokens);

// Copies special tokens, generation config and chat template of the published model that the run began with, if it is still there
// and has the same tokenizer.
void keep_origin(const RunConfig& config, const std::string& tokenizer, const std::string& output, SpecialTokens& tokens);

// A warning with the right class if transformers' AutoTokenizer (5.23) reads the files as a different tokenizer, or "".
std::string otherwise_read(const std::string& model_type, const std::string& output);

}  // namespace trireme
