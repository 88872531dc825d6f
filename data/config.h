// The `data:` section: token shards and their tokenizer.
#pragma once

#include "kernels/key.h"

namespace trireme {

struct DataConfig {
  std::vector<std::string> train, validation;
  std::string tokenizer;

  void visit(auto& keys) {
    keys("train", train, "token shards to train on: files, patterns, or directories of *.h5");
    keys("validation", validation, "token shards held out for evaluation, named in the same ways; none: no evaluation");
    keys("tokenizer", tokenizer, "tokenizer.json for sampling, or 'bytes'; must match the shards' fingerprint");
  }
};

}  // namespace trireme
