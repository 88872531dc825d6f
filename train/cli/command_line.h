// The command line: its words are parsed into the options of one command. The only host of CLI11.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/cli/commands.h"

namespace trireme {

// What one start of the program is asked to do: run `command`; without one, print `answer` and end with `code`.
struct Request {
  Command* command = nullptr;
  std::string answer{};
  ExitCode code = ExitCode::done;
};

// Of one of these commands, whose options are set. --help and --version are answers, and so is what is wrong with the words.
Request parse_command_line(const std::vector<std::unique_ptr<Command>>& commands, const std::string& version, int argc,
                           char** argv);

}  // namespace trireme
