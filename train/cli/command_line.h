// The command line: its words are parsed into the options of one command. The only host of CLI11.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/cli/commands.h"

namespace trireme {

// One start of the program: runs `command`, or without one prints `answer` and ends with `code`.
struct Request {
  Command* command = nullptr;
  std::string answer{};
  ExitCode code = ExitCode::done;
};

// Sets the options of one of these commands. --help, --version and errors in the words are answers.
Request parse_command_line(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv);

}  // namespace trireme
