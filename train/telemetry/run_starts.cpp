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

std::string starts_file(const std::string& directory) { return directory + "/starts.jsonl"; }

std::vector<RunStart> starts_in(std::string_view text) {
  std::vector<RunStart> starts;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const Json line = Json::parse_or_null(text.substr(0, end));
    if (!line.is_object()) continue;
    const auto number = [&](const char* name) {
      const Json* const found = line.find(name);
      return found != nullptr && found->is_number() ? found->get<double>() : 0;
    };
    const auto words = [&](const char* name) {
      const Json* const found = line.find(name);
      return found != nullptr && found->is_string() ? found->string() : std::string();
    };
    starts.push_back({.time = number("time"),
                      .step = static_cast<int64_t>(number("step")),
                      .ranks = std::max<int64_t>(1, static_cast<int64_t>(number("ranks"))),
                      .run = words("run"),
                      .version = words("version"),
                      .host = words("host")});
  }
  return starts;
}

}  // namespace

double program_start() { return kProgramStart; }

std::vector<RunStart> recorded_starts(const std::string& directory) { return starts_in(text_of_file(starts_file(directory))); }

RunStarts note_start(const std::string& directory, const RunStart& start) {
  const std::string path = starts_file(directory), before = text_of_file(path);
  RunStarts starts{.first = start.time, .count = 1};
  for (const RunStart& earlier : starts_in(before)) {
    if (earlier.time <= 0 || earlier.run != start.run) continue;
    ++starts.count;
    if (earlier.time > kPlausible) starts.first = std::min(starts.first, earlier.time);
  }
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
