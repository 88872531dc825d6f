#include "train/telemetry/rapl.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "base/file.h"

namespace trireme {
namespace {

// A number of a file; nothing if it is not readable.
std::optional<double> microjoules_in(const std::string& file) {
  const std::string text = text_of_file(file);
  uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || (end != text.data() + text.size() && *end != '\n')) return std::nullopt;
  return static_cast<double>(value);
}

std::string domain_name(const std::filesystem::path& domain) {
  const std::string text = text_of_file(domain / "name");
  return text.substr(0, text.find('\n'));
}

// intel-rapl:0 is a package, intel-rapl:0:1 a part of it. AMD's have the same names.
bool counts(const std::string& directory, const std::string& name) {
  if (!directory.starts_with("intel-rapl:")) return false;
  const bool part = std::ranges::count(directory, ':') > 1;
  return part ? name == "dram" : name.starts_with("package");
}

}  // namespace

Rapl::Rapl(const std::string& root) {
  std::error_code error;
  std::set<std::string> directories;
  for (std::filesystem::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
    directories.insert(at->path());
  for (const std::filesystem::path domain : directories) {
    if (!counts(domain.filename(), domain_name(domain))) continue;
    if (const std::optional<double> now = microjoules_in(domain / "energy_uj"))
      domains_.push_back({domain / "energy_uj", *now, microjoules_in(domain / "max_energy_range_uj").value_or(0)});
  }
}

double Rapl::joules() {
  for (Domain& domain : domains_) {
    const std::optional<double> now = microjoules_in(domain.file);
    if (!now) continue;
    const bool begun_again = *now < domain.last;
    if (!begun_again) microjoules_ += *now - domain.last;
    if (begun_again && domain.range > domain.last) microjoules_ += domain.range - domain.last + *now;
    domain.last = *now;
  }
  return microjoules_ * 1e-6;
}

}  // namespace trireme
