// Replaces a small file atomically: a reader, or a kill, sees the old text or the new, never a
// part.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme {

// Writes directory/name through directory/name.tmp and a rename, which replace links and follow
// none. Returns false if the write fails; the old file then remains.
bool replace_file(const std::string& path, std::string_view text);
bool replace_file_durably(const std::string& path, std::string_view text);  // also survives a loss of power

// Writes directory/name unless it exists, through directory/temporary. Returns false if it is there already, with errno EEXIST,
// or if the write fails. Of several processes that do so at once, one succeeds.
bool create_file_durably(const std::string& path, const std::string& temporary, std::string_view text);

// Writes the whole text, across interrupts and short writes. Returns false if the write fails.
bool write_all(int file, std::string_view text);

// The error for a path that cannot be written or created: the reason, an errno, and the remedy. By
// default the reason is that of the failed call before; the functions above keep it.
DataError unwritable(const std::string& path, int reason = errno);

}  // namespace trireme
