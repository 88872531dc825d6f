#include "checkpoint/piece_table.h"

#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "checkpoint/digest.h"

namespace trireme {

namespace {

constexpr std::string_view kFirstLine = "trireme pieces 1\n";

std::string joined(const std::vector<int64_t>& numbers) {
  std::string list;
  for (const int64_t number : numbers) {
    if (!list.empty()) list += ',';
    list += std::to_string(number);
  }
  return list;
}

// The words of a table, with errors that name the line.
class Lines {
 public:
  explicit Lines(std::string_view rest) : rest_(rest) {}

  bool next() {
    const size_t end = rest_.find('\n');
    if (end == 0 || rest_.empty()) return false;
    if (end == std::string_view::npos) fail("is cut");
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    ++number_;
    return true;
  }
  // True if only empty lines are left.
  bool rest_is_empty() const { return rest_.find_first_not_of('\n') == std::string_view::npos; }

  std::string_view word() {
    const size_t end = std::min(line_.find(' '), line_.size());
    const std::string_view word = line_.substr(0, end);
    line_.remove_prefix(std::min(end + 1, line_.size()));
    if (word.empty()) fail("lacks a word");
    return word;
  }
  void expect(std::string_view wanted) {
    if (word() != wanted) fail(text("lacks '", wanted, "'"));
  }
  int64_t integer() {
    const std::string_view digits = word();
    return number_in(digits);
  }
  std::vector<int64_t> integers() {
    std::vector<int64_t> numbers;
    for (std::string_view list = word();;) {
      const size_t end = std::min(list.find(','), list.size());
      numbers.push_back(number_in(list.substr(0, end)));
      if (end == list.size()) return numbers;
      if (numbers.size() == 4) fail("has more than 4 dims");
      list.remove_prefix(end + 1);
    }
  }
  uint64_t digest() {
    const std::optional<uint64_t> value = from_hex(word());
    if (!value) fail("has a digest that is not 16 hex digits");
    return *value;
  }
  void end() const {
    if (!line_.empty()) fail("has a word too many");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DamagedCheckpoint(text("line ", number_, " of its piece table ", what));
  }

 private:
  int64_t number_in(std::string_view digits) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) fail("has a number that is none");
    return number;
  }

  std::string_view rest_, line_;
  int64_t number_ = 0;
};

Piece parse_piece(Lines& lines, const Manifest& manifest) {
  Piece piece;
  piece.tensor = index_of(manifest, lines.word());
  if (piece.tensor < 0) lines.fail("names a tensor that the manifest lacks");
  const TensorEntry& tensor = tensor_of(manifest, piece);
  if (lines.word() != name_of(tensor.dtype) || lines.integers() != tensor.shape)
    lines.fail(text("has ", tensor.name, " in another dtype or shape than the manifest"));
  piece.box.offset = lines.integers();
  piece.box.shape = lines.integers();
  piece.at = lines.integer();
  piece.digest = lines.digest();
  lines.end();
  piece.bytes = checked_product(piece.box.shape, bytes_of(tensor.dtype));
  if (piece.bytes < 0) lines.fail("has a box whose size overflows");
  return piece;
}

}  // namespace

std::string piece_table(const Manifest& manifest, const FileEntry& file) {
  std::string table(kFirstLine);
  table += text("pages ", file.pages, ' ', file.pages_at, ' ', hex(file.pages_digest), "\ncontainer ", hex(file.container), '\n');
  for (const Piece& piece : file.pieces) {
    const TensorEntry& tensor = tensor_of(manifest, piece);
    table += tensor.name + ' ' + name_of(tensor.dtype) + ' ' + joined(tensor.shape) + ' ' + joined(piece.box.offset) + ' ' +
             joined(piece.box.shape) + ' ' + std::to_string(piece.at) + ' ' + hex(piece.digest) + '\n';
  }
  return table;
}

int64_t room_for_table(const Manifest& manifest, const FileEntry& file) {
  FileEntry longest = file;
  longest.pages_at = std::numeric_limits<int64_t>::max();
  for (Piece& piece : longest.pieces) piece.at = std::numeric_limits<int64_t>::max();
  return std::ssize(piece_table(manifest, longest));
}

void parse_piece_table(std::string_view table, const Manifest& manifest, FileEntry& file) {
  if (!table.starts_with(kFirstLine)) throw DamagedCheckpoint("its piece table has another format");
  Lines lines(table.substr(kFirstLine.size()));
  FileEntry read{.name = file.name,
                 .bytes = file.bytes,
                 .table_at = file.table_at,
                 .table_bytes = file.table_bytes,
                 .table_digest = file.table_digest,
                 .known = true};
  if (!lines.next()) lines.fail("is missing");
  lines.expect("pages");
  read.pages = lines.integer(), read.pages_at = lines.integer(), read.pages_digest = lines.digest();
  lines.end();
  if (!lines.next()) lines.fail("is missing");
  lines.expect("container");
  read.container = lines.digest();
  lines.end();
  int64_t page = 0;
  while (lines.next()) {
    read.pieces.push_back(parse_piece(lines, manifest));
    read.pieces.back().first_page = page;
    page += pages_of(read.pieces.back().bytes);
  }
  if (!lines.rest_is_empty()) lines.fail("follows an empty one");
  check_pieces(manifest, read);
  file = std::move(read);
}

}  // namespace trireme
