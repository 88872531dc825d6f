#include "checkpoint/run_id.h"

#include <cerrno>
#include <cstring>

#include "base/replace_file.h"
#include "checkpoint/digest.h"
#include "checkpoint/io.h"

namespace trireme {

namespace {

std::string path_of_id(const std::string& run_directory) { return run_directory + "/run.id"; }

}  // namespace

std::string read_run_id(const std::string& run_directory) {
  const Io io;
  const std::string path = path_of_id(run_directory);
  if (!path_exists(io, path)) return "";
  const IoFile file = IoFile::open_to_read(io, path);
  std::string id(16, '\0');
  const bool whole = file.size() == 17;
  if (whole) file.read_at(id.data(), 16, 0);
  if (!whole || !from_hex(id))
    throw CheckpointError(path + " is not a run's id of 16 hex digits: restore it, or remove it to take the newest checkpoint's");
  return id;
}

std::string first_run_id(const std::string& run_directory, const std::string& id) {
  const std::string path = path_of_id(run_directory);
  if (create_file_durably(path, text(path, "-", id, ".tmp"), id + "\n")) return id;
  const int reason = errno;
  // On a full disk, too, another job's id counts.
  if (const std::string there = read_run_id(run_directory); !there.empty()) return there;
  throw CheckpointError(text("cannot write ", path, ": ", strerror(reason)));
}

void keep_run_id(const std::string& run_directory, const std::string& id) {
  const std::string path = path_of_id(run_directory);
  if (!replace_file_durably(path, id + "\n")) throw CheckpointError(text("cannot write ", path, ": ", strerror(errno)));
}

}  // namespace trireme
