// The tokenizer's files of an exported model.
#pragma once

#include <string>

#include "train/config/config.h"
#include "train/hub/published_config.h"

namespace trireme {

// The own files of the tokenizer at `path`, "none" or "" for none of them, into the directory `output`, and the special tokens that
// models which use it are told of. Returns what the export has not of them, or "".
std::string write_tokenizer(const RunConfig& config, const std::string& path, const std::string& output, SpecialTokens& tokens);

// Of a run that began with a published model and its tokenizer: that one's special tokens, and how it generates and talks, if it is
// still there.
void keep_origin(const RunConfig& config, const std::string& tokenizer, const std::string& output, SpecialTokens& tokens);

// How to load the files where transformers' AutoTokenizer (5.23) makes another tokenizer of them, or "".
std::string otherwise_read(const std::string& model_type, const std::string& output);

}  // namespace trireme
