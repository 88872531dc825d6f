#include "train/cli/output_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/replace_file.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

// Throws unless what is there can be written, and leaves it as it is. A pipe is not opened: its reader would see an end.
void require_writable(const std::string& path) {
  std::error_code unreadable;
  if (fs::is_fifo(path, unreadable)) {
    if (access(path.c_str(), W_OK) != 0) throw unwritable(path);
    return;
  }
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) throw unwritable(path);
  close(file);
}

}  // namespace

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
  if (is_stream(path) || (kind == OutputKind::file && fs::exists(path, unreadable))) {
    require_writable(path);
    return PreparedOutput({});
  }
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

bool is_stream(const std::string& path) {
  std::error_code unreadable;
  const fs::file_status found = fs::status(path, unreadable);
  return fs::exists(found) && !fs::is_regular_file(found) && !fs::is_directory(found);
}

bool write_output(const std::string& path, std::string_view text) {
  if (!is_stream(path)) return replace_file_durably(path, text);
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return false;
  const bool written = write_all(file, text);
  const int reason = errno;
  close(file);
  errno = reason;
  return written;
}

}  // namespace trireme
