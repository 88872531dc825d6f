// Documents found in files, and reports about invalid ones.
#include "data/documents/documents.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "data/build/build.h"
#include "data/documents/list_files.h"
#include "test/catch.h"
#include "test/data/other_user.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const auto kSilently = [](const BuildProgress&) {};

struct Read {
  std::vector<std::string> texts, problems;
};

Read read_documents(const std::string& path, DocumentOptions options = {}) {
  Documents documents({path}, std::move(options));
  Read read;
  for (std::vector<Passage> passages; !(passages = documents.next(1 << 20)).empty();)
    for (const Passage& passage : passages) read.texts.push_back(passage.text);
  read.problems = documents.problems().first;
  return read;
}

}  // namespace

TEST_CASE("lines of JSON are documents by the name of their file, or in a plain .json by its first line") {
  const Scratch scratch;
  const std::string lines = "{\"id\": 1, \"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const std::vector<std::string> both{"one", "two"};
  for (const char* name : {"a.jsonl", "a.ndjson", "a.json"}) {
    write_text(scratch / name, lines);
    CHECK(read_documents(scratch / name).texts == both);
  }
  write_text(scratch / "indented.json", "\n  " + lines);
  CHECK(read_documents(scratch / "indented.json").texts == both);
  for (const std::string other : {"{\n  \"name\": \"a package\"\n}\n", "[1, 2, 3]\n", "{\"body\": \"x\"}\n", "", "\"text\""}) {
    INFO(other);
    write_text(scratch / "other.json", other);
    CHECK(read_documents(scratch / "other.json").texts == (other.empty() ? std::vector<std::string>{} : std::vector{other}));
  }
  CHECK(read_documents(scratch / "other.json", {.field = "body"}).problems.empty());
  write_text(scratch / "broken.json", "{\"text\": \"one\n{\"text\": \"two\"}\n");
  CHECK(read_documents(scratch / "broken.json").texts == std::vector<std::string>{"two"});
  CHECK(read_documents(scratch / "broken.json").problems.size() == 1);
  write_text(scratch / "list.json", "[{\"text\": \"one\"}, {\"text\": \"two\"}]");
  const Read list = read_documents(scratch / "list.json");
  CHECK(list.texts.empty());
  REQUIRE(list.problems.size() == 1);
  CHECK_THAT(list.problems[0], ContainsSubstring("list.json: is one JSON list") && ContainsSubstring("jq"));
  write_text(scratch / "chat.json",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", \"content\": \"hi\"}]}\n");
  CHECK(read_documents(scratch / "chat.json", {.messages = "messages"}).problems.empty());
}

TEST_CASE("a build that ended at a bad document continues if those are now skipped, and not the other way round", "[unsanitized]") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "in");
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += Json{{"text", "document " + std::to_string(i * 7919)}}.dump() + "\n";
  write_text(scratch / "in/a.jsonl", lines);
  write_text(scratch / "in/b.jsonl", "{\"text\": \"last but one\"}\nno JSON\n" + lines + "{\"text\": \"last\"}\n");
  const auto bytes = make_byte_tokenizer();
  const auto build = [&](const std::string& output, bool skip, const std::function<void()>& resumed) {
    BuildOptions options{.inputs = {scratch / "in"}, .validation_inputs = {}, .output = scratch / output, .keep_every = 0};
    options.documents.skip_bad = skip;
    return build_shards(options, *bytes, kSilently, resumed);
  };
  bool went_on = false;
  const auto resumed = [&] { went_on = true; };
  const BuildSummary whole = build("whole", true, resumed);
  CHECK(whole.skipped == 1);
  CHECK_THROWS_WITH(build("out", false, resumed), ContainsSubstring("b.jsonl:2") && ContainsSubstring("--on-error skip"));
  CHECK_FALSE(went_on);
  CHECK(build("out", true, resumed).skipped == 1);
  CHECK(went_on);
  CHECK(read_text(scratch / "out/train-00000.h5") == read_text(scratch / "whole/train-00000.h5"));

  struct Stop {};
  BuildOptions options{.inputs = {scratch / "in"}, .validation_inputs = {}, .output = scratch / "half", .keep_every = 0};
  const auto behind_the_bad_line = [&](const BuildProgress& progress) {
    if (progress.documents > 200010) throw Stop();
  };
  CHECK_THROWS_AS(build_shards(options, *bytes, behind_the_bad_line), Stop);
  went_on = false;
  CHECK_THROWS_WITH(build("half", false, resumed), ContainsSubstring("b.jsonl:2"));
  CHECK_FALSE(went_on);
}

TEST_CASE("links to directories are followed, also to one above, and a link that leads nowhere is refused") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "in/deep");
  std::filesystem::create_directories(scratch / "elsewhere/part");
  for (const char* name : {"in/b.h5", "in/deep/c.h5", "in/deep/note", "elsewhere/part/a.h5"}) write_text(scratch / name, "x");
  std::filesystem::create_directory_symlink("../elsewhere", scratch / "in/away");
  std::filesystem::create_directory_symlink("..", scratch / "in/deep/up");
  std::filesystem::create_directory_symlink(".", scratch / "in/same");
  const std::vector<std::string> found{scratch / "in/away/part/a.h5", scratch / "in/b.h5", scratch / "in/deep/c.h5"};
  CHECK(list_files({scratch / "in"}, ".h5") == found);
  CHECK(list_files({scratch / "in"}).size() == 4);
  std::filesystem::create_symlink("nowhere", scratch / "in/deep/lost");
  const auto refusal = ContainsSubstring("in/deep/lost: is a link that leads nowhere (No such file or directory)");
  CHECK_THROWS_WITH(list_files({scratch / "in"}), refusal);
  CHECK_THROWS_WITH(list_files({scratch / "in/deep/*"}, ".h5"), refusal);
  CHECK(list_files({scratch / "in"}, ".h5") == found);  // it is not called as a shard
  std::filesystem::rename(scratch / "in/deep/lost", scratch / "in/deep/lost.h5");
  CHECK_THROWS_WITH(list_files({scratch / "in"}, ".h5"), ContainsSubstring("in/deep/lost.h5: is a link that leads nowhere"));
  std::filesystem::remove(scratch / "in/deep/lost.h5");
  std::filesystem::create_symlink("self", scratch / "in/self");
  CHECK_THROWS_WITH(list_files({scratch / "in"}), ContainsSubstring("in/self: is a link that leads nowhere (Too many levels"));
}

TEST_CASE("files that links lead to are listed once, by the path with the fewest links") {
  const Scratch scratch;
  for (const char* name : {"texts/v1", "texts/v2", "elsewhere/part"}) std::filesystem::create_directories(scratch / name);
  for (const char* name : {"texts/v1/a.h5", "texts/v1/note", "texts/v2/b.h5", "elsewhere/part/c.h5"})
    write_text(scratch / name, "x");
  std::filesystem::create_directory_symlink("v1", scratch / "texts/latest");
  std::filesystem::create_symlink("v2/b.h5", scratch / "texts/again.h5");
  std::filesystem::create_directory_symlink("../v2", scratch / "texts/v1/other");
  std::filesystem::create_directory_symlink("../v1", scratch / "texts/v2/other");
  const std::vector<std::string> shards{scratch / "texts/v1/a.h5", scratch / "texts/v2/b.h5"};
  for (const char* input : {"texts", "texts/*", "texts/v*", "texts/[v]?"}) {
    INFO(input);
    CHECK(list_files({scratch / input}, ".h5") == shards);
    CHECK(list_files({scratch / input}).size() == 3);
  }
  CHECK(list_files({scratch / "texts/*/*.h5"}, ".h5") == shards);
  CHECK(list_files({scratch / "texts/*/a.h5"}) == std::vector<std::string>{scratch / "texts/v1/a.h5"});

  // An input that is named keeps its name, and the first counts.
  const std::vector<std::string> latest{scratch / "texts/latest/a.h5", scratch / "texts/latest/other/b.h5"};
  CHECK(list_files({scratch / "texts/latest"}, ".h5") == latest);
  CHECK(list_files({scratch / "texts/latest", scratch / "texts"}, ".h5") == latest);
  CHECK(list_files({scratch / "texts/again.h5", scratch / "texts/v2"}, ".h5") ==
        std::vector<std::string>{scratch / "texts/again.h5", scratch / "texts/v2/other/a.h5"});
  CHECK(list_files({shards[0], scratch.path() + "//texts/../texts/v1/a.h5"}).size() == 1);

  std::filesystem::create_directory_symlink("../elsewhere", scratch / "texts/x");
  std::filesystem::create_directory_symlink("../elsewhere/part", scratch / "texts/w");
  CHECK(list_files({scratch / "texts"}, ".h5").back() == scratch / "texts/w/c.h5");
  CHECK(list_files({scratch / "texts"}, ".h5").size() == 3);
}

TEST_CASE("patterns match names with signs and dots as they stand, and directories by a slash at the end") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "a[1]/sub*");
  for (const char* name : {"a[1]/sub*/x.txt", "a[1]/y.txt", "a[1]/.z.txt"}) write_text(scratch / name, "x");
  const std::string x = scratch / "a[1]/sub*/x.txt", y = scratch / "a[1]/y.txt";
  CHECK(list_files({scratch / "a*/*"}) == std::vector<std::string>{x, y});
  CHECK(list_files({scratch / "a*/*/"}) == std::vector<std::string>{x});
  CHECK(list_files({scratch / "a*//sub\\*/x.txt"}) == std::vector<std::string>{scratch / "a[1]//sub*/x.txt"});
  CHECK(list_files({scratch / "a\\[1]/*.txt"}) == std::vector<std::string>{y});
  CHECK(list_files({scratch / "a*/.*.txt"}) == std::vector<std::string>{scratch / "a[1]/.z.txt"});
  CHECK_THROWS_WITH(list_files({scratch / "a*/none/*.txt"}), ContainsSubstring("no file matches this pattern"));
}

TEST_CASE("a directory that cannot be read is refused by name, and left out if a file system keeps it for itself") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "in/shut");
  write_text(scratch / "in/a.h5", "x");
  write_text(scratch / "in/shut/b.h5", "x");
  std::filesystem::permissions(scratch / "in/shut", std::filesystem::perms::none);
  const auto refuses = [&](const std::string& input, const std::string& what) {
    try {
      list_files({scratch / input}, ".h5");
    } catch (const DataError& problem) {
      return std::string(problem.what()).ends_with(what);
    }
    return false;
  };
  const auto only_a = [&](const std::string& input) {
    return list_files({scratch / input}, ".h5") == std::vector<std::string>{scratch / "in/a.h5"};
  };
  const std::string denied = ": cannot be read: Permission denied", shut = "/in/shut" + denied;
  const auto read = holds_without_root(scratch, [&] {
    const bool named = refuses("in", shut) && refuses("in/s*", shut) && refuses("in/*/b*", shut) &&
                       refuses("in/*/b.h5", "/in/shut/b.h5" + denied) && only_a("in/a*");
    bool left_out = true;
    for (const std::string name : {"lost+found", "System Volume Information"}) {
      std::filesystem::rename(scratch / "in/shut", scratch / ("in/" + name));
      left_out = left_out && only_a("in") && only_a("in/*") && refuses("in/*/b.h5", "no file matches this pattern") &&
                 refuses("in/" + name, "/in/" + name + denied);
      std::filesystem::rename(scratch / ("in/" + name), scratch / "in/shut");
    }
    return named && left_out;
  });
  if (read)
    CHECK(*read);
  else
    WARN("skipped: root cannot become another user here");
  std::filesystem::permissions(scratch / "in/shut", std::filesystem::perms::owner_all);
  CHECK(list_files({scratch / "in"}, ".h5").size() == 2);
}

TEST_CASE("a pattern leaves out shards that are being written, and a name does not") {
  const Scratch scratch;
  for (const char* name : {"train-00000.h5", "train-00001.h5.tmp"}) write_text(scratch / name, "x");
  const std::vector<std::string> whole{scratch / "train-00000.h5"}, unfinished{scratch / "train-00001.h5.tmp"};
  CHECK(list_files({scratch / "train-*"}, ".h5") == whole);
  CHECK(list_files(unfinished, ".h5") == unfinished);
  CHECK(list_files({scratch / "train-*"}).size() == 2);
  CHECK_THROWS_WITH(list_files({scratch / "*.tmp"}, ".h5"), ContainsSubstring("no file matches this pattern"));
}

TEST_CASE("rows of Parquet become lines of JSON, with null for numbers that are not finite") {
  if (std::system("python3 -c pass") != 0) return;
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "pyarrow");  // stands for the library
  for (const char* name : {"csv", "ipc"}) write_text(scratch / ("pyarrow/" + std::string(name) + ".py"), "");
  write_text(scratch / "pyarrow/__init__.py", "class ArrowException(Exception): pass\n");
  write_text(scratch / "pyarrow/parquet.py", R"(
import contextlib
class Batch:
    def to_pylist(self):
        nan, inf = float("nan"), float("inf")
        return [{"text": "one", "score": nan, "all": [1.5, -inf, {"deep": (inf, 2)}], "raw": b"x"}, {"text": "NaN", "score": 1e300}]
@contextlib.contextmanager
def ParquetFile(path):
    yield File()
class File:
    class schema_arrow:
        names = ["text", "score", "all", "raw"]
    def iter_batches(self, batch_size, columns):
        yield Batch()
)");
  write_text(scratch / "a.parquet", "");
  const std::string script = std::string(TRIREME_SOURCE) + "/scripts/parquet_to_jsonl.py ";
  const std::string command =
      "PYTHONPATH=" + scratch.path() + " python3 " + script + (scratch / "a.parquet") + " >" + (scratch / "a.jsonl");
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(read_text(scratch / "a.jsonl") ==
        "{\"text\": \"one\", \"score\": null, \"all\": [1.5, null, {\"deep\": [null, 2]}], \"raw\": \"eA==\"}\n"
        "{\"text\": \"NaN\", \"score\": 1e+300}\n");
  CHECK(read_documents(scratch / "a.jsonl").texts == std::vector<std::string>{"one", "NaN"});
}
