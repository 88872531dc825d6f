#include "train/telemetry/run_starts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/replace_file.h"

namespace trireme {
namespace {

constexpr double kPlausible = 1.6e9;  // 2020: a clock that was not set is earlier
const double kProgramStart = unix_seconds();

// Calls line(text) for each whole line.
template <class Line>
void for_lines(std::string_view text, const Line& line) {
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) line(text.substr(0, end));
}

}  // namespace

double program_start() { return kProgramStart; }

RunStarts note_start(const std::string& directory, const RunStart& start) {
  const std::string path = directory + "/starts.jsonl";
  RunStarts starts{.first = start.time, .count = 1};
  const std::string before = text_of_file(path);
  for_lines(before, [&](std::string_view line) {
    const Json object = Json::parse_or_null(line);
    const Json *time = object.find("time"), *run = object.find("run");
    if (time == nullptr || !time->is_number() || run == nullptr || *run != start.run) return;
    ++starts.count;
    if (time->get<double>() > kPlausible) starts.first = std::min(starts.first, time->get<double>());
  });
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return starts;
  const Json line{{"time", start.time}, {"step", start.step},       {"ranks", start.ranks},
                  {"run", start.run},   {"version", start.version}, {"host", start.host}};
  const bool torn = !before.empty() && before.back() != '\n';
  (void)write_all(file, (torn ? "\n" : "") + line.dump() + "\n");
  close(file);
  return starts;
}

}  // namespace trireme
