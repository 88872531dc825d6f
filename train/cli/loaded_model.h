// LoadedModel: a model's weights in memory, ready to generate text on the CPU; and its tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/decoder.h"
#include "train/cli/options.h"
#include "train/cli/weight_source.h"
#include "train/eval/generate.h"

namespace trireme {

// The tokenizer of a model.
class ModelTokenizer {
 public:
  // ConfigError without data.tokenizer; DataError when it has more entries than the model.
  explicit ModelTokenizer(const WeightSource& source);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // The token in front of a document's first: a published model's bos_token_id that the tokenizer has,
  // else the end of the document before.
  int32_t begin_token() const { return begin_token_; }
  // The begin token and the tokens of `text`.
  std::vector<int32_t> document(std::string_view text) const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  int32_t begin_token_;
};

class LoadedModel {
 public:
  // Reads all weights: 2 or 4 bytes each, or 1 for int8 (see DecoderDtypes). DataError when a published file is damaged;
  // CheckpointError for a damaged checkpoint.
  explicit LoadedModel(const WeightSource& source, bool int8 = false, const DecoderRoom& room = {});

  Decoder& decoder() { return decoder_; }
  Stream& stream() { return device_.compute(); }

 private:
  RunConfig config_;
  Device device_;
  DecoderDtypes dtypes_;
  Arenas arenas_;
  Decoder decoder_;
};

// True if this process runs alone. Of several that a launcher has started, the first throws
// ConfigError and the others return false.
bool is_only_process(const std::string& command);

// Options of commands that draw tokens.
struct SamplingOptions {
  int64_t tokens = 200, top_k = 0, seed = 1;
  double temperature = 0.8, top_p = 1;
  std::string weights{};  // their precision; "": the config's

  void visit(Options& o);
  bool int8() const { return weights == "int8"; }
  WeightWords words(WeightWords from) const;  // with the precision, unless that is int8
  Sampling sampling(const Tokenizer& tokenizer) const;
};

}  // namespace trireme
