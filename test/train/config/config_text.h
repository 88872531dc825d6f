// Config of a text, or the complaint about it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "train/config/config.h"

namespace trireme {

// A file of these bytes in a folder of its own, gone at the end of the test.
struct ConfigFile {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("trireme-config-" + std::to_string(getpid()));
  std::string path = folder / "x.yaml";
  explicit ConfigFile(const std::string& bytes) {
    std::filesystem::create_directories(folder);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~ConfigFile() { std::filesystem::remove_all(folder); }
};

// The complaint about a config, with "x.yaml" for the path; "" if there is none.
inline std::string complaint(const std::string& bytes, const std::vector<std::string>& overrides = {},
                             Purpose purpose = Purpose::plan) {
  const ConfigFile file(bytes);
  try {
    read_config(file.path, overrides, purpose);
    return "";
  } catch (const ConfigError& e) {
    std::string message = e.what();
    for (size_t i; (i = message.find(file.path)) != std::string::npos;) message.replace(i, file.path.size(), "x.yaml");
    return message;
  }
}

inline RunConfig read_yaml(const std::string& bytes, const std::vector<std::string>& overrides = {}) {
  const ConfigFile file(bytes);
  return read_config(file.path, overrides, Purpose::plan);
}

}  // namespace trireme
