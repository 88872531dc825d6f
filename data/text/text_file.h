// TextFile: the text of a file from its beginning to its end, unpacked if its name ends in .gz, .zst, .xz or .bz2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/text/unpacker.h"

namespace trireme {

class TextFile {
 public:
  explicit TextFile(const std::string& path);  // DataError when it cannot be opened
  // This process's standard input, whose end is not known before; `name` says how it is packed.
  static TextFile standard_input(const std::string& name);
  ~TextFile();
  TextFile(TextFile&&) noexcept;
  TextFile& operator=(TextFile&&) noexcept;

  // The next bytes of the text: `count` of them, or fewer at its end and in front of what is damaged. DataError when nothing is
  // left but that.
  int64_t read(char* into, int64_t count);
  bool ended() const { return ended_; }        // read() was at the end of the text
  bool rewinds() const { return size_ >= 0; }  // rewind() is possible
  void rewind();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_ < 0 ? position_ : size_; }  // of the file itself, as far as it is known
  int64_t position() const { return position_; }                  // in the file itself: what has been read of it

 private:
  TextFile(File file, std::string name, int64_t size);
  int64_t read_file(char* into, int64_t count);

  std::string path_;
  File file_;
  int64_t size_ = 0, position_ = 0;     // size_ < 0: not known
  std::unique_ptr<Unpacker> unpacker_;  // none: the text is the file
  std::vector<char> packed_;
  const char *next_ = nullptr, *end_ = nullptr;  // of packed_: not unpacked yet
  bool ended_ = false;
  std::string problem_;
};

}  // namespace trireme
