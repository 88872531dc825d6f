// Checkpoints of many files: the manifest, its making and its reading must grow with the number of files
// alone. And checkpoints of version 1, whose manifests held the pieces.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/clock.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/retention.h"
#include "checkpoint/save_summary.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

constexpr int64_t kColumns = 6;

// Rows [begin, end) of a table of `rows` rows, the elements numbered.
OwnedState rows_of(int64_t rows, int64_t begin, int64_t end) {
  OwnedState owned;
  const TensorSlice& slice = owned.add("table", Dtype::i32, {rows, kColumns}, {begin, 0}, {end - begin, kColumns});
  auto* elements = static_cast<int32_t*>(slice.local.data());
  for (int64_t i = 0; i < slice.local.size(); ++i) elements[i] = static_cast<int32_t>(begin * kColumns + i);
  return owned;
}

OwnedState part_of(int64_t rows, int64_t rank, int64_t ranks) {
  return rows_of(rows, rows * rank / ranks, rows * (rank + 1) / ranks);
}

// Most memory that this process had at a time since the last call.
int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  int64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  std::ofstream("/proc/self/clear_refs") << 5;
  return kib * 1024;
}

struct Seconds {
  double commit, verify, alone, others;
};

// A checkpoint that `files` made-up ranks have written, committed and read again.
Seconds check_many_files(int64_t files) {
  const Scratch scratch(quick_directory());
  const int64_t rows = 2 * files;
  const std::string directory = scratch / "checkpoints", staged = directory + "/" + staging_name(1, random_id());
  std::filesystem::create_directories(staged);
  const Io io;
  std::vector<SaveSummary> summaries;
  for (int64_t rank = 0; rank < files; ++rank) {
    const OwnedState part = part_of(rows, rank, files);
    SaveSummary& summary = summaries.emplace_back(write_rank_file(io, staged, static_cast<int>(rank), part.state.slices));
    summary.layout = layout_share(rank, part.state.slices);
  }
  Seconds seconds;
  (void)peak_memory();
  const int64_t before = peak_memory();
  auto begin = Clock::now();
  for (size_t reach = 1; reach < summaries.size(); reach *= 2)
    for (size_t rank = 0; rank + reach < summaries.size(); rank += 2 * reach)
      summaries[rank] = summary_of(text_of(summaries[rank])), summaries[rank].add(summary_of(text_of(summaries[rank + reach])));
  Manifest manifest{.run = "0123456789abcdef",
                    .save = "0123456789abcdef",
                    .step = 1,
                    .ranks = files,
                    .counters = {},
                    .config = "",
                    .files = {},
                    .tensors = {}};
  summaries[0].fill(manifest);
  {
    const RunLock lock(scratch.path());
    Retention retention(io, directory, {});
    CHECK(retention.commit(staged, manifest, lock) > 0);
  }
  seconds.commit = seconds_since(begin);
  begin = Clock::now();
  CHECK(verify_checkpoint(step_path(scratch.path(), 1)).tensors == 1);
  seconds.verify = seconds_since(begin);
  begin = Clock::now();
  OwnedState whole = rows_of(rows, 0, rows);
  const std::vector<std::string> wanted = whole.bytes();
  whole.fill(1);
  CHECK(Checkpoints(keeping(3), scratch.path()).restore(whole.state) == 1);
  CHECK(whole.bytes() == wanted);
  seconds.alone = seconds_since(begin);
  begin = Clock::now();
  // Three ranks of a mesh of 48.
  const Layout layout = [&](int64_t rank) { return part_of(rows, rank, files).state.slices; };
  for (const int64_t rank : {0, 17, 47}) {
    OwnedState mine = part_of(rows, rank, 48);
    const std::vector<std::string> part = mine.bytes();
    mine.fill(1);
    read_slices(io, step_path(scratch.path(), 1), load_manifest(io, step_path(scratch.path(), 1)), mine.state.slices,
                {.rank = {.rank = rank, .ranks = 48, .layout = layout}});
    CHECK(mine.bytes() == part);
  }
  seconds.others = seconds_since(begin);
  const int64_t grown = peak_memory() - before;
  const auto manifest_bytes = static_cast<int64_t>(std::filesystem::file_size(step_path(scratch.path(), 1) + "/manifest.json"));
  CHECK(manifest_bytes < 150 * files + 2000);
  WARN(files << " files: a manifest of " << manifest_bytes << " bytes; seconds: commit " << seconds.commit << ", verify "
             << seconds.verify << ", restore on one rank " << seconds.alone << ", on three of 48 " << seconds.others
             << "; memory grew by " << grown / 1024 << " KiB");
  CHECK((kSanitized || grown < 200'000'000));
  return seconds;
}

std::string golden(const std::string& name) { return std::string(TRIREME_SOURCE) + "/test/checkpoint/goldens/" + name; }

}  // namespace

TEST_CASE("a checkpoint of a thousand files is committed, verified and restored on other meshes") { check_many_files(1024); }

TEST_CASE("a checkpoint of 16,384 files is committed, verified and restored on other meshes within seconds", "[.][soak]") {
  const Seconds seconds = check_many_files(16384);
  CHECK(seconds.commit < 5);
  CHECK(seconds.alone < 5);
}

TEST_CASE("a checkpoint of version 1 is verified and restored to the bit, whole and in parts") {
  const Scratch scratch(quick_directory());
  std::filesystem::create_directories(scratch / "run/checkpoints");
  std::filesystem::copy(golden("three"), step_path(scratch / "run", 7));
  CHECK(verify_checkpoint(step_path(scratch / "run", 7)).digest == "8d859647a541b027");
  const auto whole = [] {
    OwnedState owned;
    owned.add("a.matrix", Dtype::f32, {6, 10});
    owned.add("a.norm", Dtype::f32, {9});
    owned.add("b.half", Dtype::bf16, {4, 3});
    owned.add("b.ids", Dtype::i32, {5});
    return owned;
  };
  OwnedState restored = whole(), wanted = whole();
  wanted.fill(7);
  Checkpoints checkpoints(keeping(2), scratch / "run");
  CHECK(checkpoints.restore(restored.state) == 7);
  CHECK(restored.bytes() == wanted.bytes());
  CHECK(restored.state.counters == std::map<std::string, int64_t>{{"seed", -3}, {"tokens", 700}, {"updates", 7}});
  CHECK(state_digest(restored.state) == "8d859647a541b027");
  OwnedState part;
  const TensorSlice& corner = part.add("a.matrix", Dtype::f32, {6, 10}, {1, 2}, {4, 7});
  const CheckpointReader reader(scratch / "run");
  reader.read(part.state.slices);
  for (int64_t row = 0; row < 4; ++row)
    CHECK(std::memcmp(static_cast<float*>(corner.local.data()) + row * 7,
                      static_cast<float*>(wanted.state.slices[0].local.data()) + (row + 1) * 10 + 2, 7 * sizeof(float)) == 0);
  // The next one has the form of today, and both are kept.
  restored.fill(8);
  restored.state.counters["updates"] = 8;
  checkpoints.save(8, restored.state);
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{7, 8});
  CHECK(load_manifest(Io(), step_path(scratch / "run", 8)).ranks == 1);
}

TEST_CASE("pieces that overlap and leave a gap of as many elements are damage for whoever reads them") {
  const Scratch scratch(quick_directory());
  const Io io;
  OwnedState first = rows_of(4, 0, 2), second = rows_of(4, 0, 2);
  Manifest manifest = write_rank_file(io, scratch.path(), 0, first.state.slices);
  manifest.files.push_back(write_rank_file(io, scratch.path(), 1, second.state.slices).files[0]);
  for (FileEntry& file : manifest.files) file.known = false, file.pieces.clear();
  for (const int64_t rows : {2, 4}) {
    OwnedState part = rows_of(4, 0, rows);
    CHECK_THROWS_WITH(read_slices(io, scratch.path(), manifest, part.state.slices, {.tensors = {"table"}}),
                      ContainsSubstring("leave a gap or overlap"));
  }
  CHECK_THROWS_WITH(verify_files(io, scratch.path(), manifest), ContainsSubstring("overlap"));
}

TEST_CASE("a checkpoint whose directory cannot be listed is damaged, and an older one is restored") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1, 2});
  Io io;
  int listed = 0;  // the newest is looked at first
  io.list = [&listed, real = io.list](int directory, std::vector<std::string>& names) {
    const int result = real(directory, names);
    const bool of_step = std::ranges::find(names, "manifest.json") != names.end();
    return of_step && ++listed == 1 ? (errno = EIO, -1) : result;
  };
  Checkpoints checkpoints({}, scratch / "run", Resume::automatic, io);
  OwnedState owned = small_state(0);
  CHECK(checkpoints.restore(owned.state) == 1);
  CHECK(listed == 2);
}

TEST_CASE("a lock that another has named meanwhile is not ours, and is let go") {
  const Scratch scratch;
  const RunLock lock(scratch.path());
  CHECK(lock.held());
  write_text(scratch / "lock", "process 1 on another\n0123456789abcdef\n");
  CHECK_FALSE(lock.held());
  CHECK_NOTHROW(RunLock(scratch.path()));
}

TEST_CASE("what ranks have saved adds up in any grouping, and a gap, an overlap or a disagreement is named") {
  const auto saved = [](std::vector<int64_t> shape, TensorRegion box, int64_t rank) {
    Manifest part;
    part.tensors = {{.name = "w", .dtype = Dtype::f32, .shape = std::move(shape), .digest = 5}};
    part.files = {
        {.name = file_name_of(static_cast<int>(rank)), .bytes = 10 + rank, .pieces = {{.tensor = 0, .box = std::move(box)}}}};
    return SaveSummary(part);
  };
  const std::vector<SaveSummary> four{saved({4, 6}, {{0, 0}, {2, 3}}, 0), saved({4, 6}, {{0, 3}, {2, 3}}, 1),
                                      saved({4, 6}, {{2, 0}, {2, 1}}, 2), saved({4, 6}, {{2, 1}, {2, 5}}, 3)};
  const auto all_of = [](std::vector<SaveSummary> parts) {
    SaveSummary all;
    for (const SaveSummary& part : parts) all.add(summary_of(text_of(part)));
    return all;
  };
  SaveSummary left = all_of({four[0], four[1]}), right = all_of({four[2], four[3]});
  left.add(right);
  CHECK(text_of(left) == text_of(all_of(four)));
  Manifest manifest;
  left.fill(manifest);
  CHECK((manifest.files.size() == 4 && manifest.files[3].name == "shard-00003.h5" && manifest.files[3].bytes == 13));
  CHECK((manifest.tensors.size() == 1 && manifest.tensors[0].digest == 20));
  const auto problem_of_all = [&](const std::vector<SaveSummary>& parts) -> std::string {
    try {
      all_of(parts).fill(manifest);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(problem_of_all({four[0], four[1], four[2]}), ContainsSubstring("w: its pieces lack 10 elements"));
  CHECK_THAT(problem_of_all({four[0], four[1], four[3], four[3]}), ContainsSubstring("w: its pieces overlap"));
  // As many elements as there are, but one column twice and one not at all.
  CHECK_THAT(problem_of_all({four[0], four[1], four[3], saved({4, 6}, {{2, 3}, {2, 1}}, 2)}), ContainsSubstring("overlap"));
  CHECK_THAT(problem_of_all({four[0], saved({4, 7}, {{0, 3}, {2, 3}}, 1)}),
             ContainsSubstring("disagree on the shape or dtype of w"));
}
