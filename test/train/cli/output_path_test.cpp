// Output paths: made and checked before any input is read, and nothing remains of a command that failed.
#include "train/cli/output_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/data/other_user.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string refusal_of_output(const std::string& path, OutputKind kind) {
  try {
    const PreparedOutput output = prepare_output(path, kind);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

// Makes what nobody can open to write, not even root.
void make_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(file >= 0);
  CHECK(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  close(file);
}

}  // namespace

TEST_CASE("an output's directories are made, and those that stay empty are removed") {
  const Scratch scratch;
  {
    const PreparedOutput output = prepare_output(scratch / "a/b/c.json", OutputKind::file);
    CHECK(fs::is_directory(scratch / "a/b"));
    CHECK(fs::is_empty(scratch / "a/b"));
  }
  CHECK_FALSE(fs::exists(scratch / "a"));
  {
    const PreparedOutput output = prepare_output(scratch / "a/b", OutputKind::directory);
    write_text(scratch / "a/kept", "x");
  }
  CHECK(fs::exists(scratch / "a/kept"));
  CHECK_FALSE(fs::exists(scratch / "a/b"));
  { const PreparedOutput output = prepare_output(scratch / "a", OutputKind::directory); }
  CHECK(fs::exists(scratch / "a"));
}

TEST_CASE("an output of the wrong kind, or where nothing can be written, is refused with its path") {
  const Scratch scratch;
  write_text(scratch / "file", "x");
  CHECK(refusal_of_output(scratch.path(), OutputKind::file) == scratch.path() + ": is a directory: name the file to write in it");
  CHECK(refusal_of_output(scratch / "new/", OutputKind::file) == scratch / "new/: is a directory: name the file to write in it");
  CHECK(refusal_of_output(scratch / "file", OutputKind::directory) == scratch / "file: is a file: name a directory");
  CHECK(refusal_of_output(scratch / "file/a.json", OutputKind::file) ==
        scratch / "file: the directory cannot be made: Not a directory");
  CHECK(refusal_of_output("/proc/a/b.json", OutputKind::file) ==
        "/proc/a: the directory cannot be made: No such file or directory");
  CHECK_THAT(refusal_of_output("/proc/a.json", OutputKind::file),
             ContainsSubstring("/proc/.trireme-output.tmp: cannot be created: "));
  CHECK(refusal_of_output("-", OutputKind::file) == "accepted");
  CHECK(refusal_of_output("", OutputKind::file) == "accepted");
}

TEST_CASE("an output that exists is itself opened, and keeps its contents until it is written") {
  const Scratch scratch;
  make_socket(scratch / "socket");
  for (const OutputKind kind : {OutputKind::file, OutputKind::replaced_file})
    CHECK(refusal_of_output(scratch / "socket", kind) == scratch / "socket: No such device or address; choose another directory");
  write_text(scratch / "file", "x");
  CHECK(refusal_of_output(scratch / "file", OutputKind::file) == "accepted");
  CHECK(read_text(scratch / "file") == "x");
  REQUIRE(chmod((scratch / "file").c_str(), 0444) == 0);
  const auto refused = holds_without_root(scratch, [&] {
    return refusal_of_output(scratch / "file", OutputKind::file) ==
           scratch / "file: Permission denied; make it writable or choose another directory";
  });
  if (refused)
    CHECK(*refused);
  else
    WARN("skipped: root cannot become another user here");
  CHECK(refusal_of_output(scratch / "file", OutputKind::replaced_file) == "accepted");
  CHECK(write_output(scratch / "file", "y"));
  CHECK(read_text(scratch / "file") == "y");
}

TEST_CASE("pipes and devices are outputs, and stay what they are") {
  const Scratch scratch;
  REQUIRE(mkfifo((scratch / "pipe").c_str(), 0600) == 0);  // without a reader: opening it would wait
  for (const OutputKind kind : {OutputKind::file, OutputKind::replaced_file}) {
    CHECK(refusal_of_output(scratch / "pipe", kind) == "accepted");
    CHECK(refusal_of_output("/dev/null", kind) == "accepted");
  }
  write_text(scratch / "file", "x");
  CHECK((is_stream("/dev/null") && is_stream(scratch / "pipe")));
  CHECK_FALSE((is_stream(scratch / "file") || is_stream(scratch.path()) || is_stream(scratch / "nothing")));
  const bool written = write_output("/dev/full", "x");
  const int reason = errno;
  CHECK_FALSE(written);
  CHECK(reason == ENOSPC);

  write_text(scratch / "text.txt", "the cat sat on the mat and the hat");
  const auto shell = [&](const std::string& command) {
    succeed(Process(scratch.path(), {"-c", "trireme=" TRIREME_BUILD "/trireme; " + command}, 1, "/bin/sh").wait());
  };
  // A directory of open files takes no other file.
  shell("{ $trireme version --json /dev/fd/3 3>&1 >said; } | cat > version.json");
  CHECK(Json::parse(read_text(scratch / "version.json")).contains("version"));
  shell("timeout 60 cat pipe > whole.json & $trireme tokenizer train text.txt --vocab 260 --output pipe; wait");
  CHECK(Json::parse(read_text(scratch / "whole.json")).contains("model"));
  CHECK(std::filesystem::is_fifo(scratch / "pipe"));
  const Ended full = run_trireme(scratch.path(), {"version", "--json", "/dev/full"});
  CHECK(full.code == 3);
  CHECK(full.err == "--json /dev/full: cannot be written: No space left on device\n");
}

TEST_CASE("commands make the directory of their output, and leave nothing when they fail") {
  const Scratch scratch;
  write_text(scratch / "text.txt", "the cat sat on the mat and the hat");
  const auto run = [&](const std::vector<std::string>& words) { return run_trireme(scratch.path(), words); };
  CHECK(run({"tokenizer", "train", "text.txt", "--vocab", "260", "--output", "new/deep/tokenizer.json"}).code == 0);
  CHECK(fs::exists(scratch / "new/deep/tokenizer.json"));

  // A pipe without a writer as input: reading it would wait for ever.
  REQUIRE(mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  const Ended refused = run({"tokenizer", "train", "pipe", "--output", "text.txt/tokenizer.json"});
  CHECK(refused.code == 3);
  CHECK(refused.err == "text.txt: the directory cannot be made: Not a directory\n");

  write_text(scratch / "bad.txt", "fine\nbad \xff\n");
  CHECK(run({"data", "build", "text.txt", "bad.txt", "--tokenizer", "bytes", "--output", "failed/shards"}).code == 3);
  CHECK(run({"data", "build", "none.txt", "--tokenizer", "bytes", "--output", "failed/shards"}).code == 3);
  CHECK(run({"data", "import", "bad.bin", "--tokenizer", "bytes", "--output", "failed/shards"}).code == 3);
  CHECK_FALSE(fs::exists(scratch / "failed"));
  CHECK(run({"data", "build", "text.txt", "--tokenizer", "bytes", "--output", "kept"}).code == 0);
  CHECK(run({"data", "build", "bad.txt", "--tokenizer", "bytes", "--output", "kept", "--replace"}).code == 3);
  const auto inside = std::distance(fs::directory_iterator(scratch / "kept"), fs::directory_iterator());
  CHECK(inside == 1);
}

}  // namespace trireme
