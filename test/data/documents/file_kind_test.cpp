// Files that hold no plain text: recognised by name or first bytes, and refused with what to do.
#include "data/documents/file_kind.h"

#include "base/error.h"
#include "data/documents/documents.h"
#include "test/catch.h"
#include "test/data/packed.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// The texts and the one problem of a file.
struct KindRead {
  std::vector<std::string> texts{};
  std::string problem{};
};
KindRead read_kind(const Scratch& scratch, const std::string& name, const std::string& content) {
  write_text(scratch / name, content);
  Documents documents({scratch / name}, {});
  KindRead read;
  for (std::vector<Passage> passages; !(passages = documents.next(1 << 20)).empty();)
    for (const Passage& passage : passages) read.texts.push_back(passage.text);
  CHECK(documents.problems().count <= 1);
  if (documents.problems().count > 0) read.problem = documents.problems().first[0].substr(scratch.path().size() + 1);
  return read;
}

const std::string kRows = "`scripts/parquet_to_jsonl.py FILES --column NAME | trireme data build - ...` reads its rows";

}  // namespace

TEST_CASE("files of other kinds are refused by their names, also packed, with a remedy") {
  const Scratch scratch;
  for (const auto& [name, problem] : std::vector<std::pair<std::string, std::string>>{
           {"a.parquet", "is Parquet: " + kRows},
           {"a.arrow", "is Arrow: " + kRows},
           {"a.csv", "is a table: " + kRows},
           {"a.tsv.gz", "is a table: " + kRows},
           {"a.tar", "is a tar archive: unpack it first, and name the directory that it was unpacked to"},
           {"a.tar.xz", "is a tar archive: unpack it first, and name the directory that it was unpacked to"},
           {"a.tgz", "is a tar archive: unpack it first, and name the directory that it was unpacked to"},
           {"a.zip", "is a zip archive: unpack it first, and name the directory that it was unpacked to"},
           {"a.7z", "is a 7z archive: unpack it first, and name the directory that it was unpacked to"},
           {"a.pdf", "is PDF: convert it to text first, for instance by `pdftotext FILE`"},
           {"a.docx", "is a document of a word processor: convert it to text first, for instance by `pandoc -t plain FILE`"},
           {"a.npy", "is an array of NumPy: if it holds tokens, `trireme data import` takes it"},
           {"a.safetensors", "is a file of weights: leave it out of the inputs"},
           {"a.jpg", "is an image: leave it out of the inputs"}}) {
    const std::string packing = name.substr(name.rfind('.'));
    const bool table = problem.starts_with("is a table");
    const KindRead read = read_kind(scratch, name, packed_as(packing, table ? "a,b\n1,2\n" : std::string("\xd0\0\1", 3)));
    CHECK(read.texts.empty());
    CHECK(read.problem == name + ": " + problem);
  }
}

TEST_CASE("files of other kinds are refused by their first bytes, whatever their names") {
  const Scratch scratch;
  const std::string zeros(600, '\0');
  std::string tar(257, 'x');
  tar += "ustar" + zeros;
  for (const auto& [content, problem] : std::vector<std::pair<std::string, std::string>>{
           {"PAR1\x15" + zeros, "is Parquet: "},
           {"\xff\xff\xff\xff\x10" + zeros, "is an Arrow stream: "},
           {tar, "is a tar archive: "},
           {"PK\3\4" + zeros, "is a zip archive: "},
           {"%PDF-1.4\n", "is PDF: "},
           {"\x93NUMPY\1" + zeros, "is an array of NumPy: "},
           {"\x89HDF\r\n\x1a\n", "is HDF5: name it in data.train if it is a token shard"},
           {"trireme shard 1 0123", "is a token shard of Trireme: name it in data.train if it is a token shard"},
           {gzipped("text"), "is packed by gzip: give it a name that ends in .gz"},
           {zstd_packed("text"), "is packed by zstd: give it a name that ends in .zst"},
           {xz_packed("text"), "is packed by xz: give it a name that ends in .xz"},
           {bzip2_packed("text of some length, so that bytes beyond ASCII come"),
            "is packed by bzip2: give it a name that ends in .bz2"},
           {std::string("\xff\xfe"
                        "h\0i\0",
                        6),
            "is UTF-16: convert it by `iconv -f UTF-16 -t UTF-8 FILE`"}}) {
    for (const char* name : {"a.txt", "a.jsonl", "noname"}) {
      const KindRead read = read_kind(scratch, name, content);
      INFO(read.problem);
      CHECK(read.texts.empty());
      CHECK(read.problem.starts_with(std::string(name) + ": " + problem));
    }
  }
}

TEST_CASE("a text is read whatever its name is, and what begins with other bytes is refused by its name") {
  const Scratch scratch;
  const std::string words = "some caf\xc3\xa9\n", front(1023, 'x');  // a character lies across the first 1024 bytes of the second
  for (const char* name : {"a.pt", "a.br", "a.doc", "a.db", "a.ckpt", "a.parquet", "a.zip", "a.png", "a.npy", "a.rtf", "a.doc.gz"})
    for (const std::string& text : {words, front + "\xc3\xa9 and more", std::string()}) {
      INFO(name << " of " << text.size() << " bytes");
      const KindRead read = read_kind(scratch, name, packed_as(std::string(name).substr(std::string(name).rfind('.')), text));
      CHECK(read.problem.empty());
      CHECK(read.texts == (text.empty() ? std::vector<std::string>{} : std::vector{text}));
    }
  for (const std::string& other : {front + "\xff and more", front + "\xc3", std::string("text\0", 5)})
    CHECK(read_kind(scratch, "a.db", other).problem == "a.db: is a database: export its texts as JSON lines first");
  CHECK_THAT(read_kind(scratch, "a.db", front + "yz\xff").problem, ContainsSubstring("a.db:1: is not UTF-8"));
  CHECK(read_kind(scratch, "a.rtf", "{\\rtf1 text}").problem ==
        "a.rtf: is a document of a word processor: convert it to text first, for instance by `pandoc -t plain FILE`");
  CHECK(read_kind(scratch, "a.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n").problem ==
        "a.parquet: is a pointer of Git LFS: fetch what it stands for by `git lfs pull`");
}

TEST_CASE("a text that begins like another kind is still a text") {
  const Scratch scratch;
  for (const std::string text : {"PAR1 is a word", "BZh", "GIF8 times", "GGUF", "ID3", "a,b\n1,2\n", ""}) {
    const KindRead read = read_kind(scratch, "a.txt", text);
    CHECK(read.problem.empty());
    CHECK(read.texts == (text.empty() ? std::vector<std::string>{} : std::vector{text}));
  }
}

TEST_CASE("binary content in a text is refused with the place of its first zero byte") {
  const Scratch scratch;
  const std::string remedy = "convert it to UTF-8, for instance by `iconv -f LATIN1 -t UTF-8`, or leave it out";
  CHECK(read_kind(scratch, "a.txt", std::string("some text\0more", 14)).problem ==
        "a.txt: has a zero byte at byte 9, which text has not: " + remedy);
  std::string large(9 << 20, 'x');
  large[(8 << 20) + 5] = '\0';
  CHECK(read_kind(scratch, "b.txt", large).problem ==
        text("b.txt: has a zero byte at byte ", (8 << 20) + 5, ", which text has not: ", remedy).operator std::string());
  large[(8 << 20) + 5] = '\xff';
  CHECK(read_kind(scratch, "b.txt", large).problem == "b.txt:1: is not UTF-8: " + remedy);
  CHECK(read_kind(scratch, "c.bin", std::string("\1\0", 2)).problem ==
        "c.bin: has a zero byte at byte 1, which text has not: if it holds tokens, `trireme data import` takes it");
  CHECK(read_kind(scratch, "d.txt", "caf\xe9\n").problem == "d.txt:1: is not UTF-8: " + remedy);
}

TEST_CASE("a file named like JSON lines that has none is refused in one line") {
  const Scratch scratch;
  std::string prose;
  for (int i = 0; i < 9000; ++i) prose += "line " + std::to_string(i) + "\n";
  const std::string rest =
      R"(, and no line is an object such as {"text": "..."}; rename it if it is plain text, or make lines by `jq -c`)";
  CHECK(read_kind(scratch, "a.jsonl", "\n" + prose).problem ==
        R"(a.jsonl: is not a file of JSON lines: line 2 is "line 0")" + rest);
  CHECK(read_kind(scratch, "b.jsonl.gz", gzipped("{\n  \"text\": \"x\"\n}\n")).problem ==
        R"(b.jsonl.gz: is not a file of JSON lines: line 1 is "{")" + rest);
  CHECK(read_kind(scratch, "c.jsonl", std::string(100, 'x')).problem ==
        R"(c.jsonl: is not a file of JSON lines: line 1 is ")" + std::string(40, 'x') + R"(" ...)" + rest);
  const KindRead some = read_kind(scratch, "d.jsonl", "not JSON\n{\"text\": \"good\"}\n");
  CHECK(some.texts == std::vector<std::string>{"good"});
  CHECK_THAT(some.problem, ContainsSubstring("d.jsonl:1: is not JSON"));
  CHECK(read_kind(scratch, "e.jsonl", "\n \n").problem.empty());
  const std::string endless = "{\"text\": \"" + std::string(5 << 20, 'x');
  CHECK_THAT(read_kind(scratch, "f.jsonl", endless).problem, ContainsSubstring("f.jsonl:1: is not JSON"));
}
