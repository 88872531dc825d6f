// Documents: the text of shards, read in order from files. Every file is one document, except that each line of a .jsonl or .ndjson
// file is one. Files that end in .gz, .zst, .xz or .bz2 are unpacked (unpacker.h). A packed .json is taken for lines, a plain one
// if its first line is an object that has the field. Text must be UTF-8 without zero bytes. Files that are not text (file_kind.h),
// and lines that are not JSON, are problems with file and line.
//
// The file "-" is this process's standard input; DocumentOptions name its kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents/json_line.h"
#include "data/shard/provenance.h"
#include "data/text/text_file.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// A document, or a part of a long one, cut so that encoding the parts encodes the whole.
struct Passage {
  std::string text{};               // of a line with responses: up to the first; all of it if no prompt stands in front
  std::vector<LinePart> parts{};    // of such a line: each is encoded for itself
  bool starts = true, ends = true;  // the document
  DocumentSource source{};
  std::string problem{};  // what lost the document, instead of text: file:line: what
  bool json = false;      // `text` is a line of JSON still
};

// The problems of documents, in their order.
struct Problems {
  static constexpr size_t kKept = 20;
  int64_t count = 0;
  std::vector<std::string> first{};  // of kKept, one line each

  void add(const std::string& problem, const DocumentOptions& options);  // DataError, unless they are skipped
};

class Documents {
 public:
  // Bytes of a passage that is not a JSON line; of one without a good place to cut it, within the former.
  static constexpr size_t kUsualPassage = 256 << 10, kLongestPassage = 4 << 20;
  static constexpr size_t kLongestLine = 256 << 20;  // bytes of a JSON line

  Documents(std::vector<std::string> files, DocumentOptions options);

  // The next passages, of about `bytes` (at least one document or part); empty at the end. JSON is parsed on all threads.
  std::vector<Passage> next(int64_t bytes);
  const Problems& problems() const { return problems_; }  // of those that next() has passed over

  // The same in two steps: passages as they are in the files, and what is to be done with each of them, by any thread, before it
  // has text or a problem. One without either is an empty document.
  std::vector<Passage> read(int64_t bytes);
  void parse(Passage& passage) const;

  // Place after what has been read: so many passages of a file.
  struct Position {
    size_t file = 0;
    int64_t passages = 0;
    bool operator==(const Position&) const = default;
  };
  Position position() const { return file_ ? Position{next_file_ - 1, passages_} : Position{next_file_, 0}; }
  void go_on_from(const Position& position);  // before the first read(). DataError when the file ends before it

  int64_t bytes_read() const { return bytes_read_ + (file_ ? file_->position() : 0); }  // of the files themselves, as bytes_total
  int64_t bytes_total() const { return bytes_total_; }                                  // 0: not known, of standard input

 private:
  size_t cut(std::string_view text) const;
  bool open_next(std::vector<Passage>& passages);
  void begin_file();
  bool looks_like_lines() const;
  void check_text();
  void refuse_binary(size_t end, const std::string& where) const;
  bool fill();
  bool read_passage(std::vector<Passage>& passages);
  bool take_line(Passage& line);
  void drop_line(Passage& line);
  bool read_line(std::vector<Passage>& passages);
  void close();

  std::vector<std::string> files_;
  DocumentOptions options_;
  size_t next_file_ = 0;
  std::optional<TextFile> file_;
  bool json_lines_ = false, begun_ = false, ended_ = false;  // some of the file was taken; all of it is in pending_
  int64_t line_ = 0, passages_ = 0;                          // taken of this file
  std::string pending_;                                      // read and not taken: from taken_ on
  size_t taken_ = 0;
  int64_t dropped_ = 0;                                       // bytes of the text in front of pending_
  int64_t text_read_ = 0, bytes_read_ = 0, bytes_total_ = 0;  // bytes_read_: of files that are closed
  Problems problems_;
};

}  // namespace trireme
