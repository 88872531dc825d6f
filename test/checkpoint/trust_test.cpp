// Work of checkpoints that must not grow with their number or with that of their pieces.
#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/philox.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/digest.h"
#include "checkpoint/lineage.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"

using namespace trireme;

namespace {

constexpr int64_t kWidth = 1 << 20;  // elements of a state

OwnedState large_state(int64_t step) {
  OwnedState owned;
  owned.add("w", Dtype::f32, {kWidth});
  owned.fill(static_cast<uint64_t>(step) + 1);
  return owned;
}

void flip_byte(const std::string& path, int64_t at) {
  std::string content = read_text(path);
  content[static_cast<size_t>(at)] = static_cast<char>(content[static_cast<size_t>(at)] ^ 1);
  write_text(path, content);
}

std::string shard_of(const std::string& run, int64_t step) { return step_path(run, step) + "/shard-00000.h5"; }

// Saves `steps`, restarts, and returns the bytes that the first save reads.
int64_t read_by_first_save(const Scratch& scratch, int64_t steps, bool with_lineage) {
  const std::string run = scratch / ("run" + std::to_string(steps) + (with_lineage ? "" : "-alone"));
  {
    Checkpoints checkpoints({.keep = steps}, run);
    for (int64_t step = 1; step <= steps; ++step) checkpoints.save(step, large_state(step).state);
  }
  if (!with_lineage) std::filesystem::remove(lineage_path(run));
  int64_t bytes = 0;
  Io io;
  io.pread = [&bytes, real = io.pread](int fd, void* to, size_t count, off_t at) {
    bytes += static_cast<int64_t>(count);
    return real(fd, to, count, at);
  };
  Checkpoints checkpoints({.keep = steps}, run, Resume::automatic, io);
  OwnedState restored = large_state(0);
  checkpoints.restore(restored.state);
  bytes = 0;
  checkpoints.save(steps + 1, large_state(steps + 1).state);
  return bytes;
}

}  // namespace

TEST_CASE("the first save after a restart reads its own files again, not those of all checkpoints that are kept") {
  const Scratch scratch;
  constexpr int64_t kState = 4 * kWidth, kDigits = 16;  // by which the numbers in two manifests may differ
  const int64_t of_two = read_by_first_save(scratch, 2, true);
  CHECK(of_two < kState + kState / 5);
  for (const int64_t keep : {6, 12}) CHECK(std::abs(read_by_first_save(scratch, keep, true) - of_two) <= kDigits);
  CHECK(read_by_first_save(scratch, 6, false) > 5 * kState);  // what no lineage vouches for is read
}

TEST_CASE("a checkpoint in which a restore has found damage is not counted as kept, though the lineage knows it") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  save_steps(run, {1, 2, 3}, 2);
  flip_byte(shard_of(run, 3), byte_of(step_path(run, 3), "head"));
  Checkpoints checkpoints(keeping(2), run);
  OwnedState restored = small_state(0);
  CHECK(checkpoints.restore(restored.state) == 2);
  checkpoints.save(4, small_state(4).state);
  CHECK(steps_left(run) == std::vector<int64_t>{2, 3, 4});  // 2 and 4 are the valid ones
}

TEST_CASE("a lineage vouches for the manifest that it has seen, and who finds another raises a doubt") {
  const Scratch scratch;
  const std::string run = scratch / "run";
  save_steps(run, {1, 2, 3}, 3);
  // Step 2 exchanged for a whole checkpoint of another state, of which a byte is damaged.
  save_steps(scratch / "other", {2}, 3);
  {
    Checkpoints other({.keep = 3}, scratch / "other");
    OwnedState changed = small_state(7);
    other.save(2, std::move(changed.state));
  }
  std::filesystem::copy(step_path(scratch / "other", 2), step_path(run, 2),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  Manifest manifest = load_manifest(Io(), step_path(run, 2));
  manifest.run = load_manifest(Io(), step_path(run, 1)).run;
  write_text(step_path(run, 2) + "/manifest.json", write_manifest(manifest));
  flip_byte(shard_of(run, 2), byte_of(step_path(run, 2), "head"));
  Checkpoints checkpoints(keeping(3), run);
  for (const int64_t step : {1, 2, 3})
    CHECK(checkpoints.expects(step, digest(manifest_text(Io(), step_path(run, step)))) == (step != 2));
  checkpoints.doubt(2, "another manifest");
  OwnedState restored = small_state(0);
  CHECK(checkpoints.restore(restored.state) == 3);
  checkpoints.save(4, small_state(4).state);
  CHECK(checkpoints.expects(4, 0));                            // it is this process's
  CHECK(steps_left(run) == std::vector<int64_t>{1, 2, 3, 4});  // all but 2 are valid
}

TEST_CASE("a tensor of a hundred thousand pieces is checked in seconds, and a wrong one among them is found") {
  // Rows of different heights, each cut at random columns.
  constexpr int64_t kCuts = 316, kSpan = 1000;
  Manifest manifest;
  TensorEntry tensor{.name = "w", .dtype = Dtype::bf16, .shape = {kCuts * kSpan, kCuts * kSpan}};
  FileEntry file{.name = "f", .known = true};
  uint64_t number = 0;
  const auto cuts = [&] {
    std::vector<int64_t> at{0, kCuts * kSpan};
    while (std::ssize(at) <= kCuts) at.push_back(1 + static_cast<int64_t>(philox64(5, number++) % (kCuts * kSpan - 1)));
    std::ranges::sort(at);
    return at;
  };
  const auto rows = cuts();
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const auto columns = cuts();
    for (size_t j = 0; j + 1 < columns.size(); ++j) {
      Piece piece{.box = {.offset = {rows[i], columns[j]}, .shape = {rows[i + 1] - rows[i], columns[j + 1] - columns[j]}}};
      piece.at = file.bytes, piece.bytes = 2 * piece.box.size(), piece.first_page = file.pages;
      file.bytes += piece.bytes, file.pages += pages_of(piece.bytes);
      file.pieces.push_back(piece);
    }
  }
  file.pages_at = file.bytes, file.bytes += 8 * file.pages;
  manifest.files = {file}, manifest.tensors = {tensor};
  std::vector<Piece>& pieces = manifest.files[0].pieces;
  const auto begin = Clock::now();
  CHECK_NOTHROW(check(manifest));
  CHECK(seconds_since(begin) < 5);
  for (size_t i = 1; i < pieces.size(); ++i)
    if (pieces[i].box.offset[1] > 0 && pieces[i].box.size() > 0) {
      pieces[i].box.offset[1] -= 1;
      CHECK_THROWS_WITH(check(manifest), ContainsSubstring("w: its pieces overlap"));
      break;
    }
}
