#include "train/cli/output_path.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace trireme {

namespace fs = std::filesystem;

PreparedOutput::~PreparedOutput() {
  std::error_code in_use;
  std::for_each(made_.rbegin(), made_.rend(), [&](const fs::path& directory) { fs::remove(directory, in_use); });
}

PreparedOutput prepare_output(const std::string& path, OutputKind kind) {
  if (path.empty() || path == "-") return PreparedOutput({});
  std::error_code unreadable;
  const bool directory = kind == OutputKind::directory;
  if (!directory && (path.ends_with('/') || fs::is_directory(path, unreadable)))
    throw DataError(path + ": is a directory: name the file to write in it");
  if (directory && fs::exists(path, unreadable) && !fs::is_directory(path, unreadable))
    throw DataError(path + ": is a file: name a directory");
  const fs::path target = directory ? fs::path(path) : fs::path(path).parent_path();
  std::vector<fs::path> made;
  fs::path part;
  for (const fs::path& name : target) {
    part /= name;
    if (!name.empty() && !fs::exists(part, unreadable)) made.push_back(part);
  }
  std::error_code problem;
  fs::create_directories(target.empty() ? "." : target, problem);
  const std::string place = target.empty() ? "." : target.string();
  if (!fs::is_directory(place, unreadable)) throw DataError(place + ": the directory cannot be made: " + problem.message());
  const std::string probe = place + "/.trireme-output.tmp";
  File::create(probe);
  fs::remove(probe, unreadable);
  return PreparedOutput(std::move(made));
}

}  // namespace trireme
