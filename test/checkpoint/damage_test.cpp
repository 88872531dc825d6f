// Damage to checkpoints by disks, copies or hands is always noticed, named, and skipped if an older
// checkpoint is whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>

#include "checkpoint/digest.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_region.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

std::string problem_of(const std::string& checkpoint) {
  try {
    verify_checkpoint(checkpoint);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

// Restores from `run` past one damaged checkpoint, and requires that the tensors are those of the step it returns.
int64_t restored_step(const std::string& run) {
  Checkpoints checkpoints({}, run);
  OwnedState owned = small_state(0);
  const std::optional<int64_t> step = checkpoints.restore(owned.state);
  REQUIRE(step.has_value());
  REQUIRE(owned.bytes() == small_state(*step).bytes());
  REQUIRE(owned.state.counters == small_state(*step).state.counters);
  const std::vector<std::string> warnings = checkpoints.take_warnings();
  REQUIRE(warnings.size() == 1);
  REQUIRE_THAT(warnings[0], ContainsSubstring("is damaged, skipping it: "));
  return *step;
}

// manifest.json around a changed body, with a right digest.
std::string framed(const std::string& body) {
  return "{\"digest\":\"" + hex(digest(body.data(), static_cast<int64_t>(body.size()))) + "\",\n\"manifest\":" + body + "}\n";
}
std::string body_of(const std::string& manifest) {
  const size_t begin = manifest.find("\"manifest\":") + 11;
  return manifest.substr(begin, manifest.size() - begin - 2);
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every single flipped bit of a manifest is noticed") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1});
  std::string manifest = read_text(step_path(scratch / "run", 1) + "/manifest.json");
  REQUIRE_NOTHROW(parse_manifest(manifest));
  size_t noticed = 0;
  for (char& byte : manifest)
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ (1 << bit));
      try {
        parse_manifest(manifest);
      } catch (const CheckpointError&) {
        ++noticed;
      }
      byte = static_cast<char>(byte ^ (1 << bit));
    }
  CHECK(noticed == 8 * manifest.size());
  UNSCOPED_INFO(noticed);
}

TEST_CASE("every manifest that is cut off or carried on is noticed") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1});
  const std::string manifest = read_text(step_path(scratch / "run", 1) + "/manifest.json");
  for (size_t length = 0; length < manifest.size(); ++length)
    CHECK_THROWS_AS(parse_manifest(std::string_view(manifest).substr(0, length)), CheckpointError);
  CHECK_THROWS_AS(parse_manifest(manifest + "\n"), CheckpointError);
  CHECK_THROWS_AS(parse_manifest(manifest + manifest), CheckpointError);
}

TEST_CASE("every single flipped bit of a shard is noticed by verify, and by restore unless it is outside the tensors") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1, 2});
  const std::string checkpoint = step_path(scratch / "run", 2), path = checkpoint + "/shard-00000.h5";
  const FileEntry file = known_file(checkpoint);
  // In a tensor, or in the table that says where they are.
  const auto is_read = [&](int64_t byte) {
    for (const Piece& piece : file.pieces)
      if (byte >= piece.at && byte < piece.at + piece.bytes) return true;
    return byte >= file.table_at && byte < file.table_at + file.table_bytes;
  };
  std::string bytes = read_text(path);
  const int fd = open(path.c_str(), O_RDWR);
  REQUIRE(fd >= 0);
  Checkpoints checkpoints({}, scratch / "run");
  int64_t flips = 0, restores = 0, passed_over = 0;
  for (size_t i = 0; i < bytes.size(); i += kSanitized ? 3 : 1) {
    const bool read = is_read(static_cast<int64_t>(i));
    for (int bit = 0; bit < 8; ++bit) {
      if (!read && (i + static_cast<size_t>(bit)) % 4 != 0) continue;  // of the container only every fourth, to save time
      const char flipped = static_cast<char>(bytes[i] ^ (1 << bit));
      REQUIRE(pwrite(fd, &flipped, 1, static_cast<off_t>(i)) == 1);
      if (problem_of(checkpoint).empty()) FAIL("bit " << bit << " of byte " << i << " was not noticed");
      ++flips;
      if (read || (i % 8 == 0 && bit == 0)) {  // a restore reads no other bytes
        OwnedState owned = small_state(0);
        const int64_t step = *checkpoints.restore(owned.state);
        if (step != (read ? 1 : 2) || owned.bytes() != small_state(step).bytes()) FAIL("restored wrongly after byte " << i);
        ++restores;
        passed_over += step == 1;
      }
      REQUIRE(pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)) == 1);
    }
  }
  close(fd);
  CHECK(problem_of(checkpoint).empty());
  WARN(flips << " flips of " << bytes.size() << " bytes noticed, " << restores << " restores, " << passed_over
             << " of them passed over");
}

TEST_CASE("files that are cut, empty, missing, swapped, stale or no files: the older checkpoint is restored") {
  struct Damage {
    const char* name;
    std::function<void(const std::string& old, const std::string& newest)> apply;
    const char* message;  // part of verify's message for the newest
  };
  const auto cut = [](const std::string& path, int64_t less) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(static_cast<int64_t>(std::filesystem::file_size(path)) - less));
  };
  const auto copy = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  const std::string slice = "/shard-00000.h5", manifest = "/manifest.json";
  const std::vector<Damage> table{
      {"shard cut by a byte", [&](auto&, auto& n) { cut(n + slice, 1); }, "its manifest says"},
      {"shard cut to half", [&](auto&, auto& n) { std::filesystem::resize_file(n + slice, 1000); }, "is 1000 bytes"},
      {"shard empty", [&](auto&, auto& n) { write_text(n + slice, ""); }, "is 0 bytes"},
      {"shard a byte longer", [&](auto&, auto& n) { cut(n + slice, -1); }, "its manifest says"},
      {"shard missing", [&](auto&, auto& n) { std::filesystem::remove(n + slice); }, "No such file"},
      {"shard of the other step", [&](auto& o, auto& n) { copy(o + slice, n + slice); },
       "its piece table does not match its digest"},
      {"shard a directory",
       [&](auto&, auto& n) {
         std::filesystem::remove(n + slice);
         std::filesystem::create_directory(n + slice);
       },
       "not a regular file"},
      {"shard a link",
       [&](auto&, auto& n) {
         std::filesystem::rename(n + slice, n + "/elsewhere");
         std::filesystem::create_symlink("elsewhere", n + slice);
       },
       "cannot open"},
      {"shard a pipe",
       [&](auto&, auto& n) {
         std::filesystem::remove(n + slice);
         REQUIRE(mkfifo((n + slice).c_str(), 0600) == 0);
       },
       "not a regular file"},
      {"shard of zeros", [&](auto&, auto& n) { write_text(n + slice, std::string(std::filesystem::file_size(n + slice), '\0')); },
       "does not match its digest"},
      {"manifest empty", [&](auto&, auto& n) { write_text(n + manifest, ""); }, "is truncated"},
      {"manifest missing", [&](auto&, auto& n) { std::filesystem::remove(n + manifest); }, "No such file"},
      {"manifest only temporary", [&](auto&, auto& n) { std::filesystem::rename(n + manifest, n + manifest + ".tmp"); },
       "No such file"},
      {"manifest stale: of the step before", [&](auto& o, auto& n) { copy(o + manifest, n + manifest); },
       "does not match its digest"},
      {"all of the step before under a newer name",
       [&](auto& o, auto& n) {
         copy(o + manifest, n + manifest);
         copy(o + slice, n + slice);
       },
       ""},
      {"directory empty",
       [&](auto&, auto& n) {
         std::filesystem::remove(n + manifest);
         std::filesystem::remove(n + slice);
       },
       "No such file"},
  };
  for (const Damage& damage : table) {
    INFO(damage.name);
    const Scratch scratch(quick_directory());
    save_steps(scratch / "run", {1, 2});
    damage.apply(step_path(scratch / "run", 1), step_path(scratch / "run", 2));
    const std::string problem = problem_of(step_path(scratch / "run", 2));
    CHECK_THAT(problem, ContainsSubstring(damage.message));
    CHECK(problem.empty() == std::string(damage.message).empty());
    CHECK(problem.find('\n') == std::string::npos);
    CHECK(restored_step(scratch / "run") == 1);
  }
}

TEST_CASE("the damaged page of a big tensor is named") {
  const Scratch scratch(quick_directory());
  OwnedState owned;
  owned.add("a", Dtype::f32, {5});
  owned.add("big", Dtype::f32, {3, 1 << 18});
  owned.fill(1);
  Checkpoints({}, scratch / "run").save(1, owned.state);
  const std::string checkpoint = step_path(scratch / "run", 1);
  const int64_t at = byte_of(checkpoint, "big") + 2 * kPage;
  const int fd = open((checkpoint + "/shard-00000.h5").c_str(), O_WRONLY);
  REQUIRE(pwrite(fd, "damage", 6, at + 77) == 6);
  close(fd);
  CHECK_THAT(problem_of(checkpoint),
             ContainsSubstring("tensor big does not match its digest in the MiB at byte " + std::to_string(at)));
  const CheckpointReader reader(checkpoint);
  CHECK_THROWS_WITH(reader.read("big", owned.state.slices[1].local), ContainsSubstring("tensor big does not match"));
  CHECK_NOTHROW(reader.read("a", owned.state.slices[0].local));
}

namespace {

struct Bad {
  std::string from, to;
  const char* message;
};

// Each change of a manifest's body is refused with a right digest.
void check_refused(const std::string& directory, const std::vector<Bad>& table) {
  const std::string path = directory + "/manifest.json", good = body_of(read_text(path));
  write_text(path, framed(good));
  REQUIRE(problem_of(directory).empty());
  for (const Bad& bad : table) {
    INFO(bad.from << " -> " << bad.to.substr(0, 40));
    write_text(path, framed(replaced(good, bad.from, bad.to)));
    const std::string problem = problem_of(directory);
    CHECK_THAT(problem, ContainsSubstring(bad.message));
    CHECK_THAT(problem, ContainsSubstring("manifest.json"));
    CHECK(problem.find('\n') == std::string::npos);
    CHECK(problem.size() < 600);
  }
  write_text(path, framed(good));
}

}  // namespace

TEST_CASE("manifests that somebody made, with a right digest, are refused in one clear line") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1});
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::vector<Bad> table{
      {"\"version\":2", "\"version\":3", "format version 3"},
      {"\"version\":2", "\"version\":\"2\"", "version is not a 64-bit integer"},
      {"\"version\":2", "\"version\":1", "files[0]: pages is missing"},
      {"\"ranks\":1", "\"ranks\":-1", "-1 ranks"},
      {"\"ranks\":1,", "", "ranks is missing"},
      {"\"layout\":\"", "\"layout\":\"x", "layout is not a string of at most 16 bytes"},
      {"\"step\":1", "\"step\":" + deep, "nested more than 6 deep"},
      {"\"tokens\":100", "\"tokens\":101", "state's digest"},
      {"shard-00000.h5", "../shard-00000.h5", "is not a plain name"},
      {"\"table\":[", "\"table\":[9", "leaves its"},
      {"\"table\":[", "\"table\":[-", "negative sizes"},
      {"\"table\":[", "\"table\":[1,", "table is not an offset and a length"},
      {"\"table\":[", "\"table\":[\"1\",", "table is not a 64-bit integer"},
      {"\"dtype\":\"bf16\"", "\"dtype\":\"f64\"", "dtype 'f64'"},
      {"\"shape\":[7]", "\"shape\":[]", "0 dims"},
      {"\"shape\":[7]", "\"shape\":[4611686018427387904]", "shape overflows"},
      {"\"name\":\"head\"", "\"name\":\"adam_m/block.0.w\"", "not sorted"},
      {"\"tensors\":[", "\"tensors\":{},\"x\":[", "tensors is not an array"},
  };
  check_refused(step_path(scratch / "run", 1), table);
  WARN(table.size() << " bad manifests refused");
}

TEST_CASE("piece tables that somebody made, with right digests, are refused in one clear line") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1});
  const std::string directory = step_path(scratch / "run", 1), path = directory + "/shard-00000.h5";
  const std::string shard = read_text(path), good_manifest = read_text(directory + "/manifest.json");
  const Manifest good = load_manifest(Io(), directory);
  const auto at = static_cast<size_t>(good.files[0].table_at), room = static_cast<size_t>(good.files[0].table_bytes);
  std::string table = shard.substr(at, room);
  table.erase(table.find_last_not_of('\n') + 1);
  const auto problem_with = [&](std::string changed) {
    changed.resize(std::max(room, changed.size()), '\n');
    std::string content = shard;
    if (changed.size() > room) {  // it moves to the end, and lets its old place be the container's
      content += changed;
    } else {
      content.replace(at, room, changed);
    }
    write_text(path, content);
    Manifest manifest = good;
    FileEntry& file = manifest.files[0];
    file.bytes = std::ssize(content), file.table_bytes = std::ssize(changed), file.table_digest = digest(changed);
    if (changed.size() > room) file.table_at = std::ssize(shard);
    write_text(directory + "/manifest.json", write_manifest(manifest));
    return problem_of(directory);
  };
  REQUIRE(problem_with(table + "\n").empty());
  const std::string head = "head bf16 7 0 7 ";
  const std::vector<Bad> bads{
      {"trireme pieces 1", "trireme pieces 2", "another format"},
      {"pages 3 ", "pages 4 ", "4 page digests for 3 pages"},
      {"pages 3 ", "pages -3 ", "negative sizes"},
      {"pages 3 ", "pages 2305843009213693952 ", "page digests"},
      {"pages 3 ", "pages three ", "a number that is none"},
      {"pages 3 ", "pages 3  ", "lacks a word"},
      {"pages 3 ", "sides 3 ", "lacks 'pages'"},
      {"container ", "container x", "16 hex digits"},
      {head, "heat bf16 7 0 7 ", "a tensor that the manifest lacks"},
      {head, "head f32 7 0 7 ", "another dtype or shape"},
      {head, "head bf16 8 0 7 ", "another dtype or shape"},
      {head, "head bf16 7 1 7 ", "leaves the tensor in dim 0"},
      {head, "head bf16 7 9223372036854775807 7 ", "leaves the tensor in dim 0"},
      {head, "head bf16 7 9223372036854775808 7 ", "a number that is none"},
      {head, "head bf16 7 0,0 7 ", "other dims"},
      {head, "head bf16 7 0 1,1,1,1,7 ", "more than 4 dims"},
      {head, "head bf16 7 0 -7 ", "overflows"},
      {head, "head bf16 7 0 4611686018427387904 ", "overflows"},
      {head, "head bf16 7 0 6 ", "tensor head does not match its digest"},
      {head, head + "9", "leave shard-00000.h5"},
      {head, head + "-", "leave shard-00000.h5"},
      {"block.0.w f32 3,5 0,0 3,5 ", "block.0.w f32 3,5 0,0 3,5 1", "leave shard-00000.h5"},
      {"\nhead", "\n\nhead", "follows an empty one"},
      {"\ncontainer", "\n\ncontainer", "is missing"},
  };
  for (const Bad& bad : bads) {
    INFO(bad.from << " -> " << bad.to);
    const std::string problem = problem_with(replaced(table, bad.from, bad.to) + "\n");
    CHECK_THAT(problem, ContainsSubstring(bad.message));
    CHECK_THAT(problem, ContainsSubstring("shard-00000.h5"));
    CHECK(problem.find('\n') == std::string::npos);
    CHECK(problem.size() < 600);
  }
  for (size_t length = 0; length + 1 < table.size(); ++length) CHECK(!problem_with(table.substr(0, length)).empty());
  CHECK_THAT(problem_with(table + " more\n"), ContainsSubstring("a word too many"));
  write_text(path, shard);
  write_text(directory + "/manifest.json", good_manifest);
  CHECK(problem_of(directory).empty());
  WARN(bads.size() << " bad tables refused");
}

TEST_CASE("manifests of version 1, with the pieces in them, are refused in one clear line") {
  const Scratch scratch(quick_directory());
  const std::string directory = scratch / "one", path = directory + "/manifest.json";
  std::filesystem::copy(std::string(TRIREME_SOURCE) + "/test/checkpoint/goldens/one", directory);
  const std::string good = body_of(read_text(path));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::vector<Bad> table{
      {"\"version\":1", "\"version\":3", "format version 3"},
      {"\"version\":1", "\"version\":\"1\"", "version is not a 64-bit integer"},
      {"trireme checkpoint", "another program", "is not a checkpoint's manifest"},
      {"\"step\":1", "\"step\":-1", "step -1"},
      {"\"step\":1", "\"step\":1.5", "step is not a 64-bit integer"},
      {"\"step\":1", "\"step\":99999999999999999999", "step is not a 64-bit integer"},
      {"\"step\":1", "\"step\":9223372036854775808", "step is not a 64-bit integer"},
      {"\"step\":1,", "", "step is missing"},
      {"\"step\":1", "\"step\":" + deep, "nested more than 6 deep"},
      {"\"step\":1", "\"step\":}", "is not JSON"},
      {"\"tokens\":100", "\"tokens\":101", "state's digest"},
      {"\"tokens\":100", "\"tokens\":null", "counters: tokens is not a 64-bit integer"},
      {"shard-00000.h5", "../shard-00000.h5", "is not a plain name"},
      {"shard-00000.h5", "/etc/passwd", "is not a plain name"},
      {"shard-00000.h5", "", "is not a plain name"},
      {"shard-00000.h5", "..", "is not a plain name"},
      {"shard-00000.h5", "shard\\u0000.h5", "file name 'shard"},
      {"\"pages\":3", "\"pages\":-3", "negative"},
      {"\"pages\":3", "\"pages\":4", "4 page digests for 3 pages"},
      {"\"pages\":3", "\"pages\":2305843009213693952", "page digests"},
      {"\"dtype\":\"bf16\"", "\"dtype\":\"f64\"", "dtype 'f64'"},
      {"\"dtype\":\"bf16\"", "\"dtype\":\"b\\nf16\"", "dtype 'b?f16'"},
      {"\"dtype\":\"bf16\"", "\"dtype\":\"f32\"", "do not hold the piece's shape"},
      {"\"shape\":[7]", "\"shape\":[8]", "lack 1 elements"},
      {"\"shape\":[7]", "\"shape\":[]", "0 dims"},
      {"\"shape\":[7]", "\"shape\":[1,1,1,1,7]", "shape is not an array of at most 4"},
      {"\"shape\":[7]", "\"shape\":[-7]", "shape overflows"},
      {"\"shape\":[7]", "\"shape\":[4611686018427387904]", "shape overflows"},
      {"\"shape\":[3,5]", "\"shape\":[4294967296,4294967296]", "shape overflows"},
      {"\"offset\":[0,0]", "\"offset\":[9223372036854775807,0]", "leaves the tensor in dim 0"},
      {"\"offset\":[0,0]", "\"offset\":[0]", "other dims"},
      {"\"file\":0", "\"file\":1", "file 1 of 1"},
      {"\"file\":0", "\"file\":-1", "file -1 of 1"},
      {"\"at\":", "\"at\":9", "leave shard-00000.h5"},
      {"\"at\":", "\"at\":-", "leave shard-00000.h5"},
      {"\"first_page\":0", "\"first_page\":3", "page table"},
      {"\"first_page\":0", "\"first_page\":-1", "page table"},
      {"\"name\":\"head\"", "\"name\":\"adam_m/block.0.w\"", "not sorted"},
      {"\"name\":\"head\"", "\"name\":\"he\\nad\"", "not a plain tensor name"},
      {"\"pieces\":[{", "\"pieces\":[7,{", "is not an object"},
      {"\"tensors\":[", "\"tensors\":{},\"x\":[", "tensors is not an array"},
  };
  check_refused(directory, table);
  // A change that only the tensors' own digests detect: two tensors of one shape swap their bytes'
  // places.
  const auto pieces_from = [&good](size_t begin) {
    const size_t first = good.find("\"pieces\":[", begin);
    return std::pair(first, good.find(']', good.find("\"digest\"", first)) + 1);
  };
  const auto [a, a_end] = pieces_from(0);
  const auto [b, b_end] = pieces_from(a_end);
  write_text(path, framed(good.substr(0, a) + good.substr(b, b_end - b) + good.substr(a_end, b - a_end) +
                          good.substr(a, a_end - a) + good.substr(b_end)));
  CHECK_THAT(problem_of(directory), ContainsSubstring("the elements of tensor adam_m/block.0.w do not match"));
  WARN(table.size() << " bad manifests refused");
}

TEST_CASE("a checkpoint of a newer format ends the resume instead of falling back to an older one") {
  const Scratch scratch(quick_directory());
  save_steps(scratch / "run", {1, 2});
  const std::string path = step_path(scratch / "run", 2) + "/manifest.json";
  write_text(path, framed(replaced(body_of(read_text(path)), "\"version\":2", "\"version\":7")));
  Checkpoints checkpoints({}, scratch / "run");
  OwnedState owned = small_state(0);
  CHECK_THROWS_WITH(checkpoints.restore(owned.state), ContainsSubstring("format version 7"));
}

TEST_CASE("runs of a box lie where element by element arithmetic says") {
  const TensorRegion a{{0, 1, 0, 2}, {4, 5, 3, 4}}, b{{1, 0, 0, 1}, {3, 6, 3, 5}};
  for (const TensorRegion& inner : {TensorRegion{{1, 1, 0, 2}, {3, 5, 3, 4}}, TensorRegion{{2, 2, 1, 3}, {2, 3, 2, 2}},
                                    TensorRegion{{1, 1, 0, 2}, {1, 1, 1, 1}}})
    for (const int64_t begin : {int64_t{0}, int64_t{1}, inner.size() / 2})
      for (const int64_t end : {begin, inner.size() / 2 + 1, inner.size()}) {
        const auto index_in = [](const TensorRegion& box, const std::vector<int64_t>& point) {
          int64_t index = 0;
          for (size_t d = 0; d < point.size(); ++d) index = index * box.shape[d] + point[d] - box.offset[d];
          return index;
        };
        std::vector<std::pair<int64_t, int64_t>> expected, found;
        for (int64_t i = begin; i < end; ++i) {
          std::vector<int64_t> point(4);
          int64_t rest = i;
          for (size_t d = 4; d-- > 0; rest /= inner.shape[d]) point[d] = inner.offset[d] + rest % inner.shape[d];
          expected.emplace_back(index_in(a, point), index_in(b, point));
        }
        for_each_run(inner, {begin, end}, a, b, [&](int64_t in_a, int64_t in_b, int64_t count) {
          for (int64_t k = 0; k < count; ++k) found.emplace_back(in_a + k, in_b + k);
        });
        CHECK(found == expected);
      }
  int runs = 0;
  for_each_run(a, {0, a.size()}, a, a, [&](int64_t, int64_t, int64_t) { ++runs; });
  CHECK(runs == 1);  // a whole box is one run
}

TEST_CASE("what is left of a box without another is each of its other elements once") {
  const TensorRegion a{{1, 0, 2}, {3, 4, 2}};
  const auto holds = [](const TensorRegion& box, const std::array<int64_t, 3>& point) {
    for (size_t d = 0; d < 3; ++d)
      if (point[d] < box.offset[d] || point[d] >= box.offset[d] + box.shape[d]) return false;
    return true;
  };
  for (const TensorRegion& b :
       {TensorRegion{{0, 0, 0}, {5, 5, 5}}, TensorRegion{{2, 1, 2}, {1, 2, 1}}, TensorRegion{{0, 3, 3}, {2, 3, 4}},
        TensorRegion{{1, 0, 0}, {3, 4, 2}}, TensorRegion{{2, 0, 2}, {1, 4, 2}}, TensorRegion{{1, 1, 3}, {0, 1, 1}}}) {
    const std::vector<TensorRegion> parts = subtract(a, b);
    for (int64_t i = 0; i < 6; ++i)
      for (int64_t j = 0; j < 6; ++j)
        for (int64_t k = 0; k < 6; ++k) {
          const std::array<int64_t, 3> point{i, j, k};
          const auto times = std::ranges::count_if(parts, [&](const TensorRegion& part) { return holds(part, point); });
          CHECK(times == (holds(a, point) && !holds(b, point)));
        }
  }
}
