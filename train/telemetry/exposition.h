// Exposition: a page in Prometheus's text format 0.0.4, metric by metric. All names begin with trireme_.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

std::string label(std::string_view name, const std::string& value);  // name="value", as well-formed UTF-8
std::string prometheus_number(double value);

// Calls of sample() belong to the last metric(); each has the label run.
class Exposition {
 public:
  explicit Exposition(const std::string& run) : run_(label("run", run)) {}

  Exposition& metric(std::string_view name, std::string_view type, std::string_view help);
  Exposition& sample(double value, const std::string& labels = "", std::string_view suffix = "");
  void gauge(std::string_view name, std::string_view help, double value) { metric(name, "gauge", help).sample(value); }
  void counter(std::string_view name, std::string_view help, double value) { metric(name, "counter", help).sample(value); }
  const std::string& text() const { return text_; }

 private:
  const std::string run_;
  std::string name_{}, text_{};
};

}  // namespace trireme
