// The `data:` section: token shards and their tokenizer.
#pragma once

#include "base/key.h"

namespace trireme {

struct DataConfig {
  std::vector<std::string> train, validation;
  std::vector<double> weights;
  std::vector<std::string> exclude;
  std::string tokenizer;
  double scrub = 1;

  void visit(auto& keys) {
    keys("train", train, "token shards to train on: files, patterns, or directories of *.h5", paths().identity());
    keys("weights", weights,
         "sampling weight of each entry of data.train, of any sum; each entry is then a source that is read whole, again and "
         "again, at its own pace; none: all entries are one source, read in proportion to their sizes",
         above(0).identity());
    keys("exclude", exclude,
         "lists of documents that are not trained on, as 'trireme data exclude' makes them: their tokens are no targets, and with "
         "model.document_mask nothing else sees them",
         paths());
    keys("validation", validation, "token shards held out for evaluation, named in the same ways; none: no evaluation", paths());
    keys("tokenizer", tokenizer,
         "tokenizer.json (or .model, .tiktoken) for sampling, or 'bytes'; must match the shards' fingerprint", paths().identity());
    keys("scrub", scrub, "MB a second of token shards that are read and checked again in the background, round and round; 0: none",
         at_least(0));
  }
};

}  // namespace trireme
