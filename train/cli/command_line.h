// Command line: parses words into the options of one command. The only host of CLI11.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/cli/commands.h"

namespace trireme {

// Outcome of a command line: a command to run, or an answer to print before ending with `code`.
struct Request {
  Command* command = nullptr;
  std::string answer{};
  ExitCode code = ExitCode::done;
};

// Sets the options of one of these commands. --help, --version and wrong words give an answer instead.
Request parse_command_line(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv);

}  // namespace trireme
