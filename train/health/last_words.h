// Last words of a process: a line with the cause, exit.json and a coded exit, also for ends that no catch sees. These are a crash,
// an exception that leaves a thread, memory that runs out inside a library, and a library that calls exit().
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "base/error.h"

namespace trireme {

// Installs the handlers. Call before all else. A signal that is handled already, as by a sanitizer, keeps its handler. A crash
// prints its signal and stack, leaves a core file if `ulimit -c` allows one, and exits with 70.
void watch_fatal_ends();

// For a library that ends the process with a code of its own: returns only if the code is one of ours.
void judge_exit(int code);
// A code of another program, with which this process is about to end as if it were its own.
void note_passed_on(int code);
// For allocators that report failure without errno: the next seconds' crash counts as one of memory.
void note_failed_allocation();
// Record facts for the last words. `what` is a literal: "saving". exit.json is written only into a noted run directory.
void note_doing(const char* what);
void note_step(int64_t step);
void note_rank(int rank, int ranks);
void note_run(const std::string& directory);

// The exit code of an error, and its message with a remedy. Errors of memory and of threads are recognised in messages, too.
ExitCode code_of(const std::exception& error);
std::string describe_failure(const std::exception& error);
// Prints a line and writes exit.json without allocating memory. For reports that failed themselves.
void speak_last_words(const char* cause) noexcept;

}  // namespace trireme
