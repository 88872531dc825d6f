// Inputs of commands, files, directories and patterns, as lists of files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr std::string_view kStandardInput = "-";

// The regular files that `inputs` name, sorted within each input: a file, a directory (all files under it whose names do not begin
// with a dot), or a pattern with * ? []. Links are followed, and one back to a directory above it adds nothing. With `suffix`,
// directories give only names that end so, and patterns leave out unfinished files (*.tmp). "-" stands for itself. DataError for an
// input that names nothing, a link that leads nowhere, and what cannot be read.
std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix = "");

}  // namespace trireme
