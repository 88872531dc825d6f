#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file_lines.h"
#include "test/catch.h"

namespace trireme {
namespace {

struct Directory {
  std::string path = (std::filesystem::temp_directory_path() / ("trireme-file-" + std::to_string(getpid()))).string();
  Directory() { std::filesystem::create_directories(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string with(const std::string& name, const std::string& bytes) const {
    std::ofstream(path + "/" + name, std::ios::binary) << bytes;
    return path + "/" + name;
  }
};

std::string refusal_of(const std::string& path) {
  try {
    return "read: " + read_file(path, 100, "a test");
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a file is read whole up to its limit, and anything but a regular file is refused at once") {
  const Directory directory;
  CHECK(refusal_of(directory.with("small", "hello")) == "read: hello");
  CHECK(refusal_of(directory.with("empty", "")) == "read: ");
  CHECK(refusal_of(directory.with("full", std::string(100, 'x'))) == "read: " + std::string(100, 'x'));
  const std::string large = directory.with("large", std::string(101, 'x'));
  CHECK(refusal_of(large) == large + ": 101 bytes are too many for a test, at most 100");
  CHECK(text_of_file(large, 100).empty());

  const std::string pipe = directory.path + "/pipe", zeros = directory.path + "/zeros", self = directory.path + "/self";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("/dev/zero", zeros);
  std::filesystem::create_symlink("self", self);
  CHECK(refusal_of(pipe) == pipe + ": is not a regular file");
  CHECK(refusal_of(zeros) == zeros + ": is not a regular file");
  CHECK(refusal_of(directory.path) == directory.path + ": is not a regular file");
  CHECK_THAT(refusal_of(self), ContainsSubstring("self: cannot be opened: Too many levels of symbolic links"));
  CHECK(text_of_file(pipe).empty());
}

TEST_CASE("a file that reports no size is read to its end, and refused beyond the limit") {
  const std::string status = "/proc/self/status";
  if (!std::filesystem::exists(status))
    SUCCEED("no /proc");
  else {
    CHECK_THAT(read_file(status, 1 << 20, "a test"), ContainsSubstring("Pid:"));
    CHECK(refusal_of(status) == status + ": more than 100 bytes are too many for a test, at most 100");
  }
}

TEST_CASE("lines of a file have a limit, and the last one may lack its newline") {
  const Directory directory;
  FileLines lines(directory.with("lines", "a\n\nlast"), 4);
  std::string line;
  CHECK((lines.next(line) && line == "a"));
  CHECK((lines.next(line) && line.empty()));
  CHECK((lines.next(line) && line == "last" && lines.number() == 3));
  CHECK_FALSE(lines.next(line));
  FileLines longer(directory.with("long", "abcde"), 4);
  CHECK_THROWS_WITH(longer.next(line), ContainsSubstring("long:1: a line has more than 4 bytes"));
}

}  // namespace trireme
