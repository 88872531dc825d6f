// The commands of the program as a tree: name, help and options of every level. `help`, the man page and the completion of shells
// are made from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/cli/commands.h"

namespace trireme {

struct CommandNode {
  std::string name;    // "build"; of the root "trireme"
  std::string path;    // "data build"; of the root ""
  std::string about;   // one sentence
  std::string footer;  // of --help; empty: none
  std::vector<Option> options;
  bool dashes = false;                // takes words after --
  std::vector<CommandNode> children;  // of a group, and of the root
};

// Options point into the commands, which must outlive the tree.
CommandNode command_tree(const std::vector<std::unique_ptr<Command>>& commands);

// The help of a group of commands, such as "data". Error for a group that does not exist.
std::string_view about_group(std::string_view name);

// The first line of the program's help.
std::string_view about_program();

}  // namespace trireme
