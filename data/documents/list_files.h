// Inputs of commands, files, directories and patterns, as lists of files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr std::string_view kStandardInput = "-";

// The regular files that `inputs` name, sorted within each input: a file, a directory (all files under it whose names do not begin
// with a dot), or a pattern with * ? []. Links are followed, and each file is listed once: by its first input, and there by the
// path with the fewest links. With `suffix`, directories give only names that end so, and patterns leave out unfinished files
// (*.tmp). Directories that file systems keep for themselves (lost+found) are left out unless they are inputs. "-" stands for
// itself. DataError for an input that names nothing, a link that leads nowhere (under a directory: of a name that would be listed),
// and what cannot be read.
std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix = "");

}  // namespace trireme
