#include "train/telemetry/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace trireme {

bool LineReader::from_terminal() { return isatty(STDIN_FILENO) != 0; }

LineReader::Got LineReader::next(std::string& line) {
  line.clear();
  for (std::string part;;) {
    const Got got = physical(part);
    if (got == Got::interrupted) return got;
    if (got == Got::end) return line.empty() ? got : Got::line;
    const bool continues = part.ends_with('\\');
    if (continues) part.pop_back();
    line += part;
    if (!continues) return Got::line;
    line += '\n';
  }
}

LineReader::Got LineReader::physical(std::string& line) {
  while (true) {
    const size_t end = read_.find('\n');
    if (end != std::string::npos || (ended_ && !read_.empty())) {
      line = read_.substr(0, end);
      read_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return Got::line;
    }
    if (ended_) return Got::end;
    std::array<char, 4096> block;
    const ssize_t count = read(STDIN_FILENO, block.data(), block.size());
    if (count < 0 && errno == EINTR) return read_.clear(), Got::interrupted;
    if (count <= 0)
      ended_ = true;
    else
      read_.append(block.data(), static_cast<size_t>(count));
  }
}

}  // namespace trireme
