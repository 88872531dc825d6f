// Documents: the text behind the shards, read in order from files. Every file is one document, except that each line of a .jsonl
// file is one. Files whose names go on with .gz or .zst are unpacked (text_file.h); a packed .json is taken for lines. Text must be
// UTF-8; what is not, and JSON that is not, is a problem told with file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text_file.h"

namespace trireme {

// The regular files that `inputs` name, sorted within each input: a file, a directory (all files under it whose names do not begin
// with a dot), or a pattern with * ? []. With `suffix`, directories give only names that end so. DataError for an input that names
// nothing.
std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix = "");

struct DocumentOptions {
  std::string field = "text";  // of a JSON line
  bool skip_bad = true;        // a problem loses its document; otherwise it is thrown as a DataError
};

// A document, or a part of a long one: cut where no word is (tokenizer_words.h), so that encoding the parts encodes the whole.
struct Passage {
  std::string text;
  bool starts, ends;  // the document
};

class Documents {
 public:
  static constexpr size_t kLongestPassage = 4 << 20;  // bytes
  static constexpr size_t kLongestLine = 256 << 20;   // bytes of a JSON line

  Documents(std::vector<std::string> files, DocumentOptions options);

  // The next passages, of about `bytes` (at least one document or part); empty at the end. JSON is parsed on all threads.
  std::vector<Passage> next(int64_t bytes);

  int64_t bytes_read() const { return bytes_read_ + (file_ ? file_->position() : 0); }  // of the files themselves, as bytes_total
  int64_t bytes_total() const { return bytes_total_; }
  int64_t skipped() const { return skipped_; }                            // documents lost to problems
  const std::vector<std::string>& problems() const { return problems_; }  // the first 20, one line each

 private:
  struct Line {
    std::string text;
    int64_t number;
  };
  void report(const std::string& problem);
  bool open_next();
  void check_utf8();
  bool fill();
  bool read_passage(std::vector<Passage>& passages);
  bool read_line(Line& line);
  bool read_lines(int64_t bytes, std::vector<Passage>& passages);

  std::vector<std::string> files_;
  DocumentOptions options_;
  size_t next_file_ = 0;
  void close();

  std::optional<TextFile> file_;
  bool json_lines_ = false, begun_ = false, ended_ = false;  // some of the file was taken; all of it is in pending_
  int64_t line_ = 0;                                         // lines taken
  std::string pending_;                                      // read and not taken: from taken_ on
  size_t taken_ = 0;
  int64_t text_read_ = 0, bytes_read_ = 0, bytes_total_ = 0, skipped_ = 0;  // bytes_read_: of files that are closed
  std::vector<std::string> problems_;
};

}  // namespace trireme
