// Output paths of commands: made and checked before the work begins, so that no hour of work ends at a wrong path.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

enum class OutputKind { file, directory };

// The directories that were made for an output. Those that are still empty when it goes are removed again.
class PreparedOutput {
 public:
  explicit PreparedOutput(std::vector<std::filesystem::path> made) : made_(std::move(made)) {}
  ~PreparedOutput();
  PreparedOutput(const PreparedOutput&) = delete;
  PreparedOutput& operator=(const PreparedOutput&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // outermost first
};

// Makes the directory `path`, or the one that the file `path` will be in, and writes a file there to see that it can.
// For no path, and for "-", which is standard output, it does nothing. DataError with the path and the reason if that fails, or if
// `path` exists and is of the other kind.
[[nodiscard]] PreparedOutput prepare_output(const std::string& path, OutputKind kind);

}  // namespace trireme
