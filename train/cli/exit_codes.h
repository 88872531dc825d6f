// Exit codes with their meanings, for --help and the man page. docs/exit-codes.md lists the same.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace trireme {

struct ExitMeaning {
  int code;
  std::string_view meaning;
};
inline constexpr std::array kExitMeanings{
    ExitMeaning{0, "done"},
    ExitMeaning{2, "wrong config or command line"},
    ExitMeaning{3, "bad text, shard or tokenizer"},
    ExitMeaning{4, "no usable checkpoint, or a save failed"},
    ExitMeaning{70, "internal error, crash, out of memory or threads"},
    ExitMeaning{71, "a rank hung or a launcher was lost"},
    ExitMeaning{72, "numerics: too many bad steps"},
    ExitMeaning{75, "stopped on request, after a save"},
    ExitMeaning{76, "machine: a host is not fit for the run"},
    ExitMeaning{130, "second Ctrl-C: ended at once"},  // by the signal
};

// A line for each code.
std::string exit_code_lines();

}  // namespace trireme
