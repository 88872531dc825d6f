#include "train/hub/published_reading.h"

#include "base/error.h"
#include "base/json_file.h"

namespace trireme {

namespace {
constexpr JsonLimits kConfigJson{.bytes = 512 << 10, .values = 100'000};
}

PublishedReading::PublishedReading(const std::string& path) : path_(path) {
  json_ = read_json(path, kConfigJson, "a config.json");
  if (!json_.is_object()) throw DataError(path + ": is not a JSON object");
}

std::string PublishedReading::word(const char* key, const std::string& otherwise) {
  if (!has(key)) return otherwise;
  if (!json_[key].is_string()) refuse(key, "must be a string");
  return json_[key].is_string() ? json_[key].get<std::string>() : otherwise;
}

bool PublishedReading::flag(const char* key, bool otherwise) {
  if (!has(key)) return otherwise;
  if (!json_[key].is_boolean()) refuse(key, "must be true or false");
  return json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
}

int64_t PublishedReading::size(const char* key, std::optional<int64_t> otherwise) {
  if (!has(key) && otherwise) return *otherwise;
  const bool good = has(key) && json_[key].is_integer() && json_[key].get<int64_t>() > 0;
  if (!good) refuse(key, "must be a whole number above 0");
  return good ? json_[key].get<int64_t>() : 1;
}

double PublishedReading::number(const Json& of, const char* key, double otherwise) {
  if (!of.contains(key) || of[key].is_null()) return otherwise;
  const bool good = of[key].is_number() && of[key].get<double>() > 0;
  if (!good) refuse(key, "must be a number above 0");
  return good ? of[key].get<double>() : otherwise;
}

double PublishedReading::size_or_zero(const char* key, double otherwise) {
  if (!has(key)) return otherwise;
  const bool good = json_[key].is_number() && json_[key].get<double>() >= 0;
  if (!good) refuse(key, "must be a number, at least 0");
  return good ? json_[key].get<double>() : otherwise;
}

void PublishedReading::must_be(const char* key, bool value) {
  if (flag(key, value) != value)
    refuse(key, value ? "must be true: Trireme does not compute the other way" : "is not supported: Trireme does not compute it");
}

void PublishedReading::refuse(const std::string& key, const std::string& why) {
  problems_ += path_ + ": " + key + ": " + why + "\n";
}

void PublishedReading::end() const {
  if (!problems_.empty()) throw DataError(problems_.substr(0, problems_.size() - 1));
}

}  // namespace trireme
