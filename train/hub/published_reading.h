// PublishedReading: what stands in a config.json, read with all that is wrong with it gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace trireme {

class PublishedReading {
 public:
  explicit PublishedReading(const std::string& path);  // DataError for what is no JSON object

  bool says(const char* key) const { return json_.contains(key); }  // null, too
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& operator[](const char* key) const { return json_[key]; }

  // `otherwise` stands for a key that is absent or null. What is there and is not of that kind is a problem.
  std::string word(const char* key, const std::string& otherwise);
  bool flag(const char* key, bool otherwise);
  int64_t size(const char* key, std::optional<int64_t> otherwise = std::nullopt);  // without one, the key must be there
  double number(const Json& of, const char* key, double otherwise);
  double number(const char* key, double otherwise) { return number(json_, key, otherwise); }
  void must_be(const char* key, bool value);

  void refuse(const std::string& key, const std::string& why);
  void end() const;  // DataError with all problems, if there are any

 private:
  std::string path_, problems_;
  Json json_;
};

}  // namespace trireme
