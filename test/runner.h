// Runs Catch2, whose own code is compiled in a single file, for every test program's main().
#pragma once

// Runs the tests that the command line names; returns the exit code.
int run_tests(int argc, char** argv);
