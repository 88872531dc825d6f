// The man page of the program, made from the tree of its commands.
#pragma once

#include <string>

#include "train/cli/command_tree.h"

namespace trireme {

// troff for man(1) and mandoc(1), with every command, option, config key and exit code.
std::string man_page(const CommandNode& root);

}  // namespace trireme
