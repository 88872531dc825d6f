// Runs a hidden test of this very program under mpirun.
#pragma once

#include <string>
#include <utility>

namespace trireme::test {

// Output of a shell command, including stderr, and its exit code.
std::pair<std::string, int> output_of(const std::string& command);

// The command that runs tests of this program on so many ranks, more than there are cores if need be.
std::string mpirun(int ranks, const std::string& tests);

}  // namespace trireme::test
