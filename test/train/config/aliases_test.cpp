// Names of other trainers: each leads to a key of ours, or to a reason.
#include "train/config/aliases.h"

#include <algorithm>
#include <set>

#include "test/catch.h"
#include "train/config/key_names.h"

using namespace trireme;

TEST_CASE("every alias names an existing key, or says why there is none") {
  const KeyNames names;
  std::set<std::string> seen;
  for (const Alias& alias : all_aliases()) {
    INFO(alias.name);
    CHECK(seen.insert(alias.name).second);
    CHECK(std::ranges::all_of(alias.name, [](char c) { return c == '_' || std::islower(c) != 0 || std::isdigit(c) != 0; }));
    const size_t dot = alias.key.find('.');
    if (alias.key.empty())
      CHECK_FALSE(alias.note.empty());
    else
      CHECK(names.find(alias.key.substr(0, dot), alias.key.substr(dot + 1)) != nullptr);
  }
  CHECK(seen.size() >= 200);
}

TEST_CASE("the names that users of other trainers try first are known") {
  const auto key_of = [](const std::string& name) { return find_alias(name).value_or(Alias{}).key; };
  for (const std::string name : {"learning_rate", "Learning-Rate", "learningRate"}) CHECK(key_of(name) == "train.lr");
  CHECK(key_of("batch_size") == "train.batch");
  CHECK(key_of("max_steps") == "train.steps");
  CHECK(key_of("weight_decay") == "train.decay");
  CHECK(key_of("n_layer") == "model.layers");
  CHECK(key_of("hidden_size") == "model.width");
  CHECK(key_of("num_layers") == "model.layers");
  CHECK(key_of("per_device_train_batch_size") == "train.microbatch");
  CHECK(key_of("gradient_accumulation_steps") == "train.microbatch");
  CHECK(key_of("block_size") == "model.context");
  CHECK(key_of("tensor_model_parallel_size") == "parallel.tp");
  CHECK_FALSE(find_alias("zebra"));
  CHECK_FALSE(find_alias(""));
  CHECK(nearest_alias("lerning_rate").value().key == "train.lr");
  CHECK_FALSE(nearest_alias("zebra"));
}

TEST_CASE("advice is one question or one reason, never a list of keys") {
  const KeyNames names;
  CHECK(names.on_key("train", "learning_rate").words == "did you mean train.lr?");
  CHECK(names.on_key("train", "betas").words == "did you mean train.beta1 (and train.beta2)?");
  CHECK(names.on_key("model", "dropout").words == "dropout is not supported");
  CHECK(names.on_key("model", "layer").meant == "model.layers");
  CHECK(names.on_key("model", "lr").meant == "train.lr");
  CHECK(names.on_key("", "train.lr").meant == "train.lr");
  CHECK(names.on_key("train", "zebra").words == "trireme train --help lists all keys");
  CHECK(names.on_section("trian", true).words == "did you mean train?");
  CHECK(names.on_section("optimizer", true).words == "did you mean train?");
  CHECK(names.on_section("optimizer", false).words == "the optimizer is always AdamW");
}
