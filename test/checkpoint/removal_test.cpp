// Removal follows no link and deletes nothing that the program did not make.
#include "checkpoint/removal.h"

#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/directory_layout.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"
#include "test/data/scratch.h"

using namespace trireme;
namespace fs = std::filesystem;

namespace {

constexpr auto kStep = "step-00000007.tmp";

// A directory of files with the names that a checkpoint has.
void make_step(const std::string& path) {
  fs::create_directories(path);
  for (const char* name : {"manifest.json", "shard-00000.h5", "shard-00001.h5.tmp"}) write_text(path + "/" + name, name);
}

size_t entries(const std::string& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

std::vector<std::string> swept(const std::string& directory) {
  std::vector<std::string> warnings;
  sweep(Io(), directory, warnings);
  return warnings;
}

}  // namespace

TEST_CASE("a link in the place of a checkpoint's directory is removed, and what it names stays") {
  const Scratch scratch;
  make_step(scratch / "victim");
  fs::create_directories(scratch / "checkpoints");
  for (const char* name : {"step-00000007.tmp", "step-00000008-0123456789abcdef.tmp", "step-00000009.replaced"})
    fs::create_directory_symlink(scratch / "victim", scratch / "checkpoints/" + name);
  fs::create_directory_symlink(scratch / "victim", scratch / "checkpoints/step-00000009");
  CHECK(swept(scratch / "checkpoints").empty());
  CHECK(entries(scratch / "victim") == 3);
  CHECK(entries(scratch / "checkpoints") == 1);
  delete_step(Io(), scratch / "checkpoints", 9);
  CHECK(entries(scratch / "victim") == 3);
  CHECK(entries(scratch / "checkpoints") == 0);
}

TEST_CASE("a link within a checkpoint is removed, and its target stays") {
  const Scratch scratch;
  make_step(scratch / "checkpoints/" + kStep);
  write_text(scratch / "precious", "kept");
  fs::create_symlink(scratch / "precious", scratch / "checkpoints/" + kStep + "/shard-00002.h5");
  CHECK(swept(scratch / "checkpoints").empty());
  CHECK(entries(scratch / "checkpoints") == 0);
  CHECK(read_text(scratch / "precious") == "kept");
}

TEST_CASE("what is not of a checkpoint is left and named") {
  const std::string other = GENERATE("notes.txt", "shard-00000.h5.bak", "shard-.h5", "manifest.json/", "sub/");
  const Scratch scratch;
  const std::string step = scratch / "checkpoints/" + kStep, path = step + "/" + other;
  make_step(step);
  fs::remove(step + "/manifest.json");
  if (path.ends_with('/'))
    fs::create_directories(path), write_text(path + "a", "kept");
  else
    write_text(path, "kept");
  const std::vector<std::string> warnings = swept(scratch / "checkpoints");
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0],
             ContainsSubstring(step + " holds " + other.substr(0, other.find('/')) + ", which is not of this program"));
  CHECK(entries(step) == 1);
  CHECK(read_text(path.ends_with('/') ? path + "a" : path) == "kept");
}

TEST_CASE("a file where a directory of a checkpoint should be is left and named") {
  const Scratch scratch;
  fs::create_directories(scratch / "checkpoints");
  write_text(scratch / "checkpoints/" + kStep, "kept");
  const std::vector<std::string> warnings = swept(scratch / "checkpoints");
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("is not a directory"));
  CHECK(read_text(scratch / "checkpoints/" + kStep) == "kept");
}

TEST_CASE("a directory that becomes a link between the look and the opening is not followed") {
  const Scratch scratch;
  const std::string step = scratch / "checkpoints/" + kStep;
  make_step(scratch / "victim");
  make_step(step);
  Io io;
  io.openat = [&, real = io.openat](int from, const char* name, int flags) {
    if (name == std::string(kStep)) {
      fs::rename(step, scratch / "elsewhere");
      fs::create_directory_symlink(scratch / "victim", step);
    }
    return real(from, name, flags);
  };
  CHECK_THROWS_AS(remove_directory(io, step, kManifestName), CheckpointError);
  CHECK(entries(scratch / "victim") == 3);
  CHECK(entries(scratch / "elsewhere") == 3);
}

TEST_CASE("files of other users are left and named") {
  if (geteuid() != 0) return;  // nobody else can give files away
  const Scratch scratch;
  const std::string step = scratch / "checkpoints/" + kStep;
  make_step(step);
  REQUIRE(chown((step + "/shard-00000.h5").c_str(), 12345, 12345) == 0);
  const std::vector<std::string> warnings = swept(scratch / "checkpoints");
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("holds shard-00000.h5"));
  CHECK(entries(step) == 1);
  REQUIRE(chown(step.c_str(), 12345, 12345) == 0);  // of the directory's owner, but the directory is another's
  CHECK_THAT(swept(scratch / "checkpoints").at(0), ContainsSubstring("belongs to user 12345"));
}

TEST_CASE("a step that was moved to another disk and linked back is forgotten when its time comes, and stays there") {
  const Scratch scratch;
  {
    Checkpoints checkpoints(keeping(2), scratch / "run");
    for (const int64_t step : {1, 2}) checkpoints.save(step, small_state(step).state);
  }
  fs::rename(scratch / "run/checkpoints/step-00000001", scratch / "archived");
  fs::create_directory_symlink(scratch / "archived", scratch / "run/checkpoints/step-00000001");
  const size_t files = entries(scratch / "archived");
  Checkpoints checkpoints(keeping(2), scratch / "run");
  OwnedState state = small_state(0);
  REQUIRE(checkpoints.restore(state.state) == 2);
  checkpoints.save(3, small_state(3).state);
  CHECK(checkpoints.take_warnings().empty());
  CHECK(entries(scratch / "archived") == files);
  CHECK(entries(scratch / "run/checkpoints") == 2);
}
