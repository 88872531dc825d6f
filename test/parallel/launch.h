// Runs a hidden test of the same program under mpirun.
#pragma once

#include <string>
#include <utility>

namespace trireme::test {

// Output of a shell command, including stderr, and its exit code.
std::pair<std::string, int> output_of(const std::string& command);

// The command that runs tests of this program on so many ranks, even more than there are cores.
std::string mpirun(int ranks, const std::string& tests);

}  // namespace trireme::test
