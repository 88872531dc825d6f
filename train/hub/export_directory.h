// ExportDirectory: where an export is written. It lies inside the output's directory, from where its files take their places when
// all of them are on disk, config.json last. What is cut off before leaves an older model as it was; after, no config.json, and so
// no model: never parts of two.
#pragma once

#include <string>
#include <vector>

namespace trireme {

class ExportDirectory {
 public:
  // ConfigError when the directory holds files of those names and they are not to be replaced.
  ExportDirectory(const std::string& directory, bool replace);
  ~ExportDirectory();
  ExportDirectory(const ExportDirectory&) = delete;
  ExportDirectory& operator=(const ExportDirectory&) = delete;

  std::string partial() const { return directory_ + "/.partial"; }
  void commit() const;

 private:
  std::vector<std::string> exported() const;

  const std::string directory_;
};

inline constexpr const char *kExportIndex = "model.safetensors.index.json", *kExportConfig = "config.json";

// DataError for what cannot be read or written.
void write_export(const std::string& path, const std::string& text);
void copy_export(const std::string& from, const std::string& to);

}  // namespace trireme
