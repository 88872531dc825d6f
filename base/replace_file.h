// A small file that is replaced whole: a reader, or a kill, sees the old text or the new, never a part.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Write directory/name through directory/name.tmp and a rename. False when the disk refuses; the old file stands then.
bool replace_file(const std::string& path, std::string_view text);
bool replace_file_durably(const std::string& path, std::string_view text);  // it also survives a loss of power

// All of it, over interrupts and short writes. False when the disk refuses.
bool write_all(int file, std::string_view text);

}  // namespace trireme
