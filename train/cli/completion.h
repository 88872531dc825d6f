// Completion scripts of shells, made from the tree of the program's commands.
#pragma once

#include <string>

#include "train/cli/command_tree.h"

namespace trireme {

// Each completes commands, options, words that an option may be, keys after --set, and files. Sourced, or installed where the shell
// looks for completions.
std::string bash_completion(const CommandNode& root);
std::string zsh_completion(const CommandNode& root);
std::string fish_completion(const CommandNode& root);

}  // namespace trireme
