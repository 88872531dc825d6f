// LineReader: the lines of standard input, as somebody types them or a pipe brings them.
#pragma once

#include <string>

namespace trireme {

class LineReader {
 public:
  enum class Got { line, end, interrupted };

  // The next line without its end. A line that ends in a backslash continues with the next one. `interrupted`: a signal came while
  // it waited; what was typed of the line is dropped.
  Got next(std::string& line);
  static bool from_terminal();

 private:
  Got physical(std::string& line);

  std::string read_;
  bool ended_ = false;
};

}  // namespace trireme
