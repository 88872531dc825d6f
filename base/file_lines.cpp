#include "base/file_lines.h"

#include "base/error.h"

namespace trireme {

FileLines::FileLines(const std::string& path, int64_t longest) : file_(File::open_to_read(path)), longest_(longest) {}

bool FileLines::next(std::string& line) {
  constexpr size_t kPart = 1 << 18;
  line.clear();
  ++number_;
  while (true) {
    const size_t end = part_.find('\n', at_);
    line.append(part_, at_, end == std::string::npos ? end : end - at_);
    if (std::ssize(line) > longest_)
      throw DataError(text(file_.path(), ":", number_, ": a line has more than ", longest_, " bytes"));
    if (end != std::string::npos) return at_ = end + 1, true;
    part_.resize(kPart);
    part_.resize(static_cast<size_t>(file_.read(part_.data(), static_cast<int64_t>(kPart))));
    at_ = 0;
    if (part_.empty()) return !line.empty();
  }
}

}  // namespace trireme
