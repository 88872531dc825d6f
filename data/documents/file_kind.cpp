#include "data/documents/file_kind.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace trireme {

namespace {

// Remedies that several kinds share.
constexpr const char* kToLines = "`scripts/parquet_to_jsonl.py FILES --column NAME | trireme data build - ...` reads its rows";
constexpr const char* kOffice = "convert it to text first, for instance by `pandoc -t plain FILE`";
constexpr const char* kShard = "name it in data.train if it is a token shard";
constexpr const char* kUnpackFirst = "unpack it first, and name the directory that it was unpacked to";
constexpr const char* kNoText = "leave it out of the inputs";

struct FileKind {
  std::vector<std::string_view> suffixes;
  std::string_view magic;  // "": no first bytes are known
  size_t at = 0;           // of the magic, in bytes
  const char* what;
  const char* remedy;
  bool is_text = false;  // it is refused by its name although it is one
};

using namespace std::string_view_literals;

const std::vector<FileKind>& kinds() {
  static const std::vector<FileKind> kKinds{
      {{".parquet"}, "PAR1"sv, 0, "Parquet", kToLines},
      {{".arrow", ".feather"}, "ARROW1\0\0"sv, 0, "Arrow", kToLines},
      {{}, "\xff\xff\xff\xff"sv, 0, "an Arrow stream", kToLines},
      {{".csv", ".tsv"}, ""sv, 0, "a table", kToLines, true},
      {{".tar", ".tgz", ".tbz2", ".txz", ".tzst"}, "ustar"sv, 257, "a tar archive", kUnpackFirst},
      {{".docx", ".odt", ".epub", ".rtf"}, "{\\rtf"sv, 0, "a document of a word processor", kOffice},
      {{".xlsx", ".ods", ".pptx"}, ""sv, 0, "an office document", "export it as text first"},
      {{".doc", ".xls", ".ppt"}, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, 0, "an office document", "export it as text first"},
      {{".npz", ".pkl", ".pickle"}, ""sv, 0, "an array or object of Python", "write its texts as JSON lines first"},
      {{".pt", ".pth", ".ckpt", ".safetensors", ".gguf"}, "GGUF"sv, 0, "a file of weights", kNoText},
      {{".zip"}, "PK\3\4"sv, 0, "a zip archive", kUnpackFirst},
      {{".7z"}, "7z\xbc\xaf\x27\x1c"sv, 0, "a 7z archive", kUnpackFirst},
      {{".rar"}, "Rar!\x1a\7"sv, 0, "a rar archive", kUnpackFirst},
      {{".pdf"}, "%PDF-"sv, 0, "PDF", "convert it to text first, for instance by `pdftotext FILE`"},
      {{".npy"}, "\x93NUMPY"sv, 0, "an array of NumPy", kTokensRemedy},
      {{".h5", ".hdf5"}, "\x89HDF\r\n\x1a\n"sv, 0, "HDF5", kShard},
      {{}, "trireme shard "sv, 0, "a token shard of Trireme", kShard},
      {{".sqlite", ".db"}, "SQLite format 3\0"sv, 0, "a database", "export its texts as JSON lines first"},
      {{".png"}, "\x89PNG\r\n"sv, 0, "an image", kNoText},
      {{".jpg", ".jpeg"}, "\xff\xd8\xff"sv, 0, "an image", kNoText},
      {{".gif"}, "GIF8"sv, 0, "an image", kNoText},
      {{".mp3", ".mp4", ".wav", ".webm", ".ogg", ".flac"}, "ID3"sv, 0, "sound or video", kNoText},
      {{".lz4", ".br", ".Z", ".lzma"}, "\x04\x22\x4d\x18"sv, 0, "packed in a format that is not read", "pack it by gzip or zstd"},
      {{}, "\x1f\x8b\x08"sv, 0, "packed by gzip", "give it a name that ends in .gz"},
      {{}, "\x28\xb5\x2f\xfd"sv, 0, "packed by zstd", "give it a name that ends in .zst"},
      {{},
       "\xfd"
       "7zXZ\0"sv,
       0,
       "packed by xz",
       "give it a name that ends in .xz"},
      {{}, "BZh"sv, 0, "packed by bzip2", "give it a name that ends in .bz2"},
      {{}, "version https://git-lfs.github.com/spec/"sv, 0, "a pointer of Git LFS", "fetch what it stands for by `git lfs pull`"},
      {{}, "\xff\xfe"sv, 0, "UTF-16", "convert it by `iconv -f UTF-16 -t UTF-8 FILE`"},
      {{}, "\xfe\xff"sv, 0, "UTF-16", "convert it by `iconv -f UTF-16 -t UTF-8 FILE`"},
  };
  return kKinds;
}

// Whether the first KiB is UTF-8 without a zero byte.
bool begins_as_text(std::string_view bytes) {
  constexpr size_t kLooked = 1024;
  const std::string_view begin = bytes.substr(0, kLooked + 3);  // with the rest of a character that lies across its end
  return utf8_prefix(begin) >= std::min(begin.size(), kLooked) && begin.substr(0, kLooked).find('\0') == std::string_view::npos;
}

std::string refusal(const FileKind& kind) { return text("is ", kind.what, ": ", kind.remedy); }

// The beginning of a line for a message: at most 40 bytes of UTF-8.
std::string opening_of(std::string_view line) {
  const bool cut = line.size() > 40;
  const std::string_view begin = cut ? line.substr(0, start_of_character(line, 40)) : line;
  return Json(std::string(begin.substr(0, utf8_prefix(begin)))).dump() + (cut ? " ..." : "");
}

}  // namespace

std::string refusal_of_name(std::string_view path, std::string_view begin) {
  for (const FileKind& kind : kinds())
    if (std::ranges::any_of(kind.suffixes, [&](std::string_view suffix) { return path.ends_with(suffix); }))
      return !kind.is_text && begins_as_text(begin) ? std::string() : refusal(kind);
  return {};
}

std::string refusal_of_bytes(std::string_view begin) {
  const auto is_binary = [&] { return begin.find('\0') != std::string_view::npos || utf8_prefix(begin) + 4 < begin.size(); };
  for (const FileKind& kind : kinds()) {
    if (kind.magic.empty() || begin.size() < kind.at || !begin.substr(kind.at).starts_with(kind.magic)) continue;
    // Few letters may begin a text, too.
    const bool letters =
        kind.magic.size() < 5 && std::ranges::all_of(kind.magic, [](char c) { return static_cast<signed char>(c) >= ' '; });
    if (!letters || is_binary()) return refusal(kind);
  }
  return {};
}

std::string refusal_of_lines(std::string_view begin, bool whole, const std::string& rename) {
  std::string first;
  bool any = false;
  for (int64_t number = 1; !begin.empty(); ++number) {
    const size_t end = begin.find('\n');
    if (end == std::string_view::npos && !whole) break;  // the rest of the line is not here
    std::string_view line = begin.substr(0, end);
    begin.remove_prefix(end == std::string_view::npos ? begin.size() : end + 1);
    const size_t from = line.find_first_not_of(" \t\r");
    if (from == std::string_view::npos) continue;
    line = line.substr(from, line.find_last_not_of(" \t\r") + 1 - from);
    if (line.starts_with('{') && line.ends_with('}')) return {};
    if (!any) first = text("line ", number, " is ", opening_of(line));
    any = true;
  }
  if (!any) return {};
  return "is not a file of JSON lines: " + first + R"(, and no line is an object such as {"text": "..."}; )" + rename +
         " if it is plain text, or make lines by `jq -c`";
}

}  // namespace trireme
