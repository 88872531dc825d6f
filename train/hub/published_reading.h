// PublishedReading: reads a config.json and collects all of its problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace trireme {

class PublishedReading {
 public:
  explicit PublishedReading(const std::string& path);  // DataError if it is not a JSON object

  bool says(const char* key) const { return json_.contains(key); }  // also if it is null
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& operator[](const char* key) const { return json_[key]; }

  // A key's value; `otherwise` if it is absent or null. A value of another type is a problem.
  std::string word(const char* key, const std::string& otherwise);
  bool flag(const char* key, bool otherwise);
  int64_t size(const char* key, std::optional<int64_t> otherwise = std::nullopt);  // without `otherwise`, the key is required
  double number(const Json& of, const char* key, double otherwise);
  double number(const char* key, double otherwise) { return number(json_, key, otherwise); }
  double size_or_zero(const char* key, double otherwise);  // a number that may also be 0
  void must_be(const char* key, bool value);

  void refuse(const std::string& key, const std::string& why);
  void end() const;  // throws DataError with all problems, if there are any

 private:
  std::string path_, problems_;
  Json json_;
};

}  // namespace trireme
