// The lineage: whole lines are believed, a torn last one is cut off, any other change is named.
#include "checkpoint/lineage.h"

#include <errno.h>

#include <filesystem>
#include <utility>

#include "checkpoint/run_id.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

Commit commit_of(int64_t step) {
  return {.step = step,
          .save = "s" + std::to_string(step),
          .run = "r",
          .manifest = "m",
          .time = "t",
          .tokens = 10 * step,
          .records = {{"metrics", {.bytes = step, .value = 7}}}};
}

std::vector<int64_t> steps_of(const LineageText& lineage) {
  std::vector<int64_t> steps;
  for (const Commit& commit : lineage.commits) steps.push_back(commit.step);
  return steps;
}

}  // namespace

TEST_CASE("a lineage continues where it ended, also after a torn line") {
  const Scratch scratch;
  const std::string path = scratch / "lineage.jsonl";
  const Io io;
  CHECK(Lineage(io, path).last().step == -1);
  for (int64_t step = 1; step <= 4; ++step) {
    Lineage lineage(io, path);
    lineage.append(commit_of(step));
    CHECK(lineage.last().step == step);
  }
  const std::string whole = read_text(path);
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t size = last; size < whole.size(); ++size) {
    write_text(path, whole.substr(0, size));
    const LineageText torn = read_lineage(io, path);
    REQUIRE(torn.problems.empty());
    REQUIRE(steps_of(torn) == std::vector<int64_t>{1, 2, 3});
  }
  Lineage(io, path).append(commit_of(4));
  CHECK(read_text(path) == whole);
  const LineageText found = read_lineage(io, path);
  CHECK(found.commits.back().records.at("metrics") == ChainedDigest{.bytes = 4, .value = 7});
}

TEST_CASE("every changed byte before a lineage's last line is named, and so is a line that is missing") {
  const Scratch scratch;
  const std::string path = scratch / "lineage.jsonl";
  const Io io;
  Lineage lineage(io, path);
  for (int64_t step = 1; step <= 3; ++step) lineage.append(commit_of(step));
  const std::string whole = read_text(path);
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t i = 0; i + 1 < last; ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write_text(path, changed);
    INFO("byte " << i);
    REQUIRE(!read_lineage(io, path).problems.empty());
  }
  write_text(path, whole.substr(whole.find('\n') + 1));
  CHECK(!read_lineage(io, path).problems.empty());
}

TEST_CASE("a lineage that cannot be appended to has no torn line after the next time") {
  const Scratch scratch;
  const std::string path = scratch / "lineage.jsonl";
  Io io;
  bool fails = false, halved = false;
  io.pwrite = [&, real = io.pwrite](int fd, const void* bytes, size_t count, off_t at) -> ssize_t {
    if (!fails) return real(fd, bytes, count, at);
    if (!std::exchange(halved, true)) return real(fd, bytes, count / 2, at);
    return errno = ENOSPC, -1;
  };
  Lineage lineage(io, path);
  lineage.append(commit_of(1));
  fails = true;
  CHECK_THROWS_AS(lineage.append(commit_of(2)), CheckpointError);
  fails = false;
  lineage.append(commit_of(2));
  CHECK(steps_of(read_lineage(Io(), path)) == std::vector<int64_t>{1, 2});
  CHECK(read_lineage(Io(), path).problems.empty());
}

TEST_CASE("of two jobs that begin a run, one names it") {
  const Scratch scratch;
  const std::string run = scratch.path(), first(16, 'a'), second(16, 'b');
  CHECK(first_run_id(run, first) == first);
  CHECK(first_run_id(run, second) == first);
  CHECK(read_run_id(run) == first);
  CHECK(std::distance(std::filesystem::directory_iterator(run), {}) == 1);  // nothing is left over
}
