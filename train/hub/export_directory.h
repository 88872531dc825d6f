// ExportDirectory: a directory whose files appear together. They are written to a subdirectory of the output and moved when all of
// them are on disk, config.json last. An interruption before the move leaves an older model as it was. One during the move leaves
// no config.json, and so no model: never parts of two.
#pragma once

#include <string>
#include <vector>

namespace trireme {

class ExportDirectory {
 public:
  // Creates the directory. ConfigError if it holds an exported model and `replace` is false.
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

// Both throw DataError if a file cannot be read or written.
void write_export(const std::string& path, const std::string& text);
void copy_export(const std::string& from, const std::string& to);

}  // namespace trireme
