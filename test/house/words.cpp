#include <algorithm>
#include <array>

#include "test/house/rules.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

struct Refusal {
  std::vector<string_view> words;
  std::vector<string_view> only_in;  // empty: nowhere
  string_view reason;
};
const std::vector<Refusal> kRefusals{
    {{"cout", "cerr", "clog", "printf(", "fprintf(", "puts(", "fputs(", "putchar(", "perror(", "stdout", "stderr", "STDOUT_FILENO",
      "STDERR_FILENO"},
     {"train/telemetry/log.cpp"},
     "only train/telemetry/log.cpp speaks"},
    {{"getenv", "secure_getenv", "setenv", "putenv", "environ"},
     {"parallel/world.cpp", "base/openmp_start.cpp"},
     "only parallel/world.cpp reads the environment, and base/openmp_start.cpp before it"},
    {{"new", "shared_ptr", "make_shared", "malloc("}, {}, "owners are few and plain"},
    {{"exit(", "quick_exit(", "std::abort(", "std::terminate("},
     {"train/cli/main.cpp"},
     "errors are exceptions; main alone ends the program"},
    // Files of /proc, and metrics that the run itself wrote. A foreign path may be a pipe, a device or without an end.
    {{"ifstream", "fopen("},
     {"kernels/device.cpp", "parallel/journal.cpp", "train/run/supervise_io.cpp", "train/telemetry/metrics.cpp"},
     "files are read by base/file.h, which bounds them"},
    {{"istringstream", "ostringstream", "stringstream"},
     {"base/text_stream.h", "base/error.h"},  // a message may be cut short
     "those of base/text_stream.h report allocations that fail"},
    {{"using namespace std;"}, {}, "names are spelled or aliased"},
};

// Hosts that may test their library's version, or set a switch that its header requires.
struct Switch {
  string_view path, word;
};
constexpr std::array<Switch, 6> kSwitches{{{"kernels/cpu/matmul.cpp", "DNNL_VERSION"},
                                           {"data/tokenizer/tokenizer_words.cpp", "PCRE2_CODE_UNIT_WIDTH"},
                                           {"data/text/text_pattern.cpp", "PCRE2_CODE_UNIT_WIDTH"},
                                           {"test/catch.h", "__has_include"},
                                           {"test/emulation/include/cuda_runtime.h", ""},
                                           {"test/runner.cpp", "CATCH_CONFIG_RUNNER"}}};

void check_directive(const Source& source, int number, string_view line, Problems& problems) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == string_view::npos || line[hash] != '#') return;
  const string_view directive = line.substr(std::min(line.find_first_not_of(" \t", hash + 1), line.size()));
  if (!directive.starts_with("if") && !directive.starts_with("elif") && !directive.starts_with("define")) return;
  const bool host = std::any_of(kSwitches.begin(), kSwitches.end(), [&](const Switch& s) {
    return s.path == source.path && directive.find(s.word) != string_view::npos;
  });
  if (!host) problems.push_back(at(source, number) + "no preprocessor: CMake picks files, C++ has constants and templates");
}

}  // namespace

Problems check_words(const std::vector<Source>& sources) {
  Problems problems;
  for (const Source& source : sources) {
    const bool test = source.path.starts_with("test/");
    each_line(code_of(source.text), [&](int number, string_view line) {
      check_directive(source, number, line, problems);
      if (test) return;
      for (const Refusal& refusal : kRefusals)
        for (const string_view word : refusal.words)
          if (std::ranges::find(refusal.only_in, source.path) == refusal.only_in.end() && holds_word(line, word))
            problems.push_back(at(source, number) + "'" + string(word) + "': " + string(refusal.reason));
    });
    each_line(source.text, [&](int number, string_view line) {
      if (source.path.starts_with("test/house/")) return;  // its strings name them
      for (const string_view word : {"TODO", "FIXME", "XXX"})
        if (holds_word(line, word)) problems.push_back(at(source, number) + string(word) + ": open ends live in issues");
    });
  }
  return problems;
}

}  // namespace trireme::house
