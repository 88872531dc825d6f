// Output paths of commands: made and checked before the work begins, so that no hour of work ends at a wrong path.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class OutputKind { file, replaced_file, directory };  // file: written in place; replaced_file: by write_output()

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
// A file that is written in place, or a stream, is itself opened for that if it exists, and keeps its contents.
// For no path, and for "-", which is standard output, it does nothing. DataError with the path and the reason if that fails, or if
// `path` exists and is of the other kind.
[[nodiscard]] PreparedOutput prepare_output(const std::string& path, OutputKind kind);

// True for what exists and is neither a regular file nor a directory, such as a pipe or /dev/null.
bool is_stream(const std::string& path);

// Replaces a file durably by a rename, or writes into a stream, which a rename would remove. False, with errno, if that fails.
bool write_output(const std::string& path, std::string_view text);

}  // namespace trireme
