// The JSON Schema of the config: current, and with every key.
#include "train/config/config_schema.h"

#include "base/json.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/config/keys.h"

using namespace trireme;

TEST_CASE("configs/schema.json is what trireme config schema prints") {
  INFO("mend it: build/trireme config schema > configs/schema.json");
  CHECK(read_text(TRIREME_SOURCE "/configs/schema.json") == config_schema());
}

TEST_CASE("the schema has type, range, values, help and default of every key") {
  const Json schema = Json::parse(config_schema());
  CHECK(schema.at("$schema") == "https://json-schema.org/draft/2020-12/schema");
  const Json& sections = schema.at("properties");
  for (const Key& key : list_keys({})) {
    INFO(key.full());
    const Json& section = sections.at(key.section);
    CHECK(section.at("additionalProperties") == false);
    const Json& entry = section.at("properties").at(key.name);
    CHECK(entry.at("description") == key.help);
    CHECK(entry.contains("default"));
  }
  const Json& train = sections.at("train").at("properties");
  CHECK(train.at("schedule").at("enum") == Json(std::vector<std::string>{"constant", "linear", "cosine", "wsd"}));
  CHECK(train.at("steps").at("type") == "integer");
  CHECK(train.at("steps").at("minimum") == 1);
  CHECK(train.at("lr").at("exclusiveMinimum") == 0);
  CHECK(train.at("min_lr").at("maximum") == 1);
  CHECK(train.at("lr").at("default") == 1e-3);
  CHECK(sections.contains("include"));
}
