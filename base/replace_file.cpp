#include "base/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trireme {

namespace {

bool sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool fine = fsync(file) == 0;
  close(file);
  return fine;
}

bool write_file(const std::string& path, std::string_view text, bool sync) {
  unlink(path.c_str());  // left by a process that was killed; a link is removed and not followed
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool written = write_all(file, text) && (!sync || fsync(file) == 0);
  const int reason = errno;
  if (close(file) != 0) return false;
  if (!written) errno = reason;
  return written;
}

// False, with the errno of the failure before.
bool remove_failed(const std::string& temporary) {
  const int reason = errno;
  unlink(temporary.c_str());
  errno = reason;
  return false;
}

bool put_in_place(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return true;
  return remove_failed(from);
}

}  // namespace

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  if (write_file(temporary, text, false)) return put_in_place(temporary, path);
  return remove_failed(temporary);
}

bool replace_file_durably(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  if (write_file(temporary, text, true)) return put_in_place(temporary, path) && sync_directory_of(path);
  return remove_failed(temporary);
}

bool create_file_durably(const std::string& path, const std::string& temporary, std::string_view text) {
  if (!write_file(temporary, text, true)) return remove_failed(temporary);
  const bool linked = link(temporary.c_str(), path.c_str()) == 0;
  if (const bool unsupported = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS; !linked && unsupported) {
    if (access(path.c_str(), F_OK) == 0) return errno = EEXIST, remove_failed(temporary);
    return put_in_place(temporary, path) && sync_directory_of(path);
  }
  remove_failed(temporary);
  return linked && sync_directory_of(path);
}

DataError unwritable(const std::string& path, int reason) {
  const char* remedy = "choose another directory";
  if (reason == ENOSPC || reason == EDQUOT) remedy = "free space or choose another directory";
  if (reason == ELOOP) return DataError(path + ": is a symbolic link, which is not followed; remove it");
  if (reason == EACCES || reason == EPERM) remedy = "make it writable or choose another directory";
  return DataError(text(path, ": ", std::strerror(reason), "; ", remedy));
}

}  // namespace trireme
