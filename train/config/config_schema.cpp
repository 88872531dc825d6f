#include "train/config/config_schema.h"

#include <cmath>

#include "base/json.h"
#include "train/config/keys.h"

namespace trireme {
namespace {

Json whole_or_real(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) <= kExact) return static_cast<int64_t>(value);
  return value;
}

void put_range(Json& schema, const Limit& limit) {
  if (std::isfinite(limit.lowest)) schema[limit.open ? "exclusiveMinimum" : "minimum"] = whole_or_real(limit.lowest);
  if (std::isfinite(limit.highest)) schema["maximum"] = whole_or_real(limit.highest);
}

// Editors complete a list; a single value is a list of one.
Json list_schema(const Json& element) {
  Json list = Json::object();
  list["type"] = "array";
  list["items"] = element;
  Json either = Json::object();
  either["anyOf"] = {list, element};
  return either;
}

Json typed(const char* type) {
  Json schema = Json::object();
  schema["type"] = type;
  return schema;
}

Json steps_schema() {
  Json words = typed("string"), number = typed("integer"), element = Json::object();
  words["pattern"] = "^[1-9][0-9]*(-[1-9][0-9]*)?$";
  number["minimum"] = 1;
  element["anyOf"] = {number, words};
  return list_schema(element);
}

Json type_schema(const Key& key) {
  const auto is = [&](const char* type) { return key.type.starts_with(type); };
  Json number = typed(is("a whole number") || is("a list of whole numbers") ? "integer" : "number");
  put_range(number, key.limit);
  if (is("true or false")) return typed("boolean");
  if (is("a whole number") || is("a number")) return number;
  if (is("a list of paths")) return list_schema(typed("string"));
  if (is("a list of numbers") || is("a list of whole numbers")) return list_schema(number);
  if (is("a list of steps")) return steps_schema();
  if (key.words.empty()) {
    Json schema = Json::object();  // a plain 7 or true is a text, too
    schema["type"] = {"string", "number", "boolean"};
    return schema;
  }
  Json schema = Json::object();
  schema["enum"] = Json(key.words);
  return schema;
}

Json default_of(const Key& key) {
  if (!key.words.empty()) return key.value;
  return Json::parse(key.value);
}

Json section_schema() {
  Json schema = Json::object();
  schema["type"] = {"object", "null"};
  schema["additionalProperties"] = false;
  schema["properties"] = Json::object();
  return schema;
}

}  // namespace

std::string config_schema() {
  Json root = Json::object();
  root["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  root["title"] = "Config of trireme";
  root["type"] = "object";
  root["minProperties"] = 1;
  root["additionalProperties"] = false;
  Json include = list_schema(typed("string"));
  include["description"] = "files to read first, relative to this one; this file's keys win";
  root["properties"] = Json::object();
  root["properties"]["include"] = include;
  for (const Key& key : list_keys({})) {
    Json& sections = root["properties"];
    if (!sections.contains(key.section)) sections[key.section] = section_schema();
    Json schema = type_schema(key);
    schema["description"] = key.help;
    schema["default"] = default_of(key);
    sections[key.section]["properties"][key.name] = schema;
  }
  return root.dump({.indent = 2}) + "\n";
}

}  // namespace trireme
