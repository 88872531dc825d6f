// The one file that compiles Catch2's own code, for every test program's main().
#pragma once

// Runs the tests that the command line names; the exit code.
int run_tests(int argc, char** argv);
