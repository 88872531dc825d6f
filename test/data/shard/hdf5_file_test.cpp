#include "data/shard/hdf5_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "kernels/tensor.h"
#include "test/catch.h"
#include "test/data/h5dump.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// Standard output of a command, for HDF5's own tools.
std::string output_of(const std::string& command, const Scratch& scratch) {
  const std::string to = scratch / "output";
  if (std::system((command + " > " + to + " 2>&1").c_str()) != 0) return "failed";
  return read_text(to);
}

}  // namespace

TEST_CASE("an HDF5 file knows where its bytes are and reads back as it was declared") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const std::vector<Hdf5Spec> specs{{"tokens", Hdf5Type::u16, {5001}}, {"empty", Hdf5Type::f32, {0, 7}},
                                    {"bf", Hdf5Type::bf16, {2, 3}},    {"bytes", Hdf5Type::u8, {3}},
                                    {"big", Hdf5Type::i64, {64, 64}},  {"u", Hdf5Type::u32, {1}},
                                    {"digests", Hdf5Type::u64, {9}},   {"layers.0.q", Hdf5Type::f32, {4, 4, 4}}};
  const std::vector<Hdf5Attribute> attributes{
      {"count", int64_t{1} << 40}, {"name", std::string("Trirème")}, {"none", std::string()}};
  const int64_t user_block = GENERATE(int64_t{0}, int64_t{4096});
  auto datasets = create_hdf5(path, specs, attributes, user_block);

  REQUIRE(datasets.size() == specs.size());
  std::vector<std::pair<int64_t, int64_t>> ranges{{0, user_block}};
  for (size_t i = 0; i < specs.size(); ++i) {
    CHECK(datasets[i].name == specs[i].name);
    CHECK(datasets[i].shape == specs[i].shape);
    if (datasets[i].bytes >= 4096) CHECK(datasets[i].offset % 4096 == 0);
    if (datasets[i].bytes > 0) ranges.emplace_back(datasets[i].offset, datasets[i].offset + datasets[i].bytes);
  }
  CHECK(datasets[1].bytes == 0);
  CHECK(datasets[4].bytes == 64 * 64 * 8);
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) CHECK(ranges[i - 1].second <= ranges[i].first);
  CHECK(ranges.back().second <= File::open_to_read(path).size());
  CHECK(File::open_to_read(path).size() < 200000);

  File::open_to_write(path).write_at(std::string(static_cast<size_t>(user_block), 'x').data(), user_block, 0);
  const Hdf5Layout layout = read_hdf5_layout(path);
  std::sort(datasets.begin(), datasets.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  CHECK(layout.datasets == datasets);
  CHECK(layout.attributes == attributes);
}

TEST_CASE("HDF5's own tools read what was written by offset, bf16 included") {
  if (!has_h5dump()) return;
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  const auto datasets =
      create_hdf5(path, {{"x", Hdf5Type::bf16, {4}}, {"n", Hdf5Type::i64, {2}}}, {{"words", std::string("hello")}}, 4096);
  const Bf16 x[4] = {Bf16(1.5f), Bf16(-0.25f), Bf16(384.0f), Bf16(0.0f)};
  const int64_t n[2] = {-7, int64_t{1} << 50};
  File file = File::open_to_write(path);
  file.write_at(x, sizeof x, datasets[0].offset);
  file.write_at(n, sizeof n, datasets[1].offset);
  const std::string dump = output_of("h5dump " + path, scratch);
  CHECK_THAT(dump, ContainsSubstring("(0): 1.5, -0.25, 384, 0"));
  CHECK_THAT(dump, ContainsSubstring("(0): -7, 1125899906842624"));
  CHECK_THAT(dump, ContainsSubstring("\"hello\""));
}

TEST_CASE("large HDF5 files align to large blocks") {
  const Scratch scratch;
  const auto datasets =
      create_hdf5(scratch / "sparse.h5", {{"a", Hdf5Type::f32, {8 << 20}}, {"b", Hdf5Type::u8, {(8 << 20) + 1}}}, {});
  CHECK((datasets[1].offset - datasets[0].offset) % (1 << 20) == 0);
  CHECK(datasets[0].offset % (1 << 20) == 0);
}

TEST_CASE("the same declaration gives the same file") {
  const Scratch scratch;
  const auto write = [&](const std::string& path) {
    create_hdf5(path, {{"a", Hdf5Type::f32, {10}}}, {{"k", int64_t{3}}});
    return read_text(path);
  };
  CHECK(write(scratch / "one.h5") == write(scratch / "two.h5"));
}

TEST_CASE("bad HDF5 declarations and files are refused by name") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  CHECK_THROWS_WITH(create_hdf5(path, {{"a/b", Hdf5Type::f32, {1}}}, {}), ContainsSubstring("'a/b' is not a name"));
  CHECK_THROWS_WITH(create_hdf5(path, {{"a", Hdf5Type::f32, {-1}}}, {}), ContainsSubstring("a dim of -1"));
  CHECK_THROWS_WITH(create_hdf5(path, {{"a", Hdf5Type::f32, {1ll << 40, 1ll << 40}}}, {}), ContainsSubstring("63 bits"));
  CHECK_THROWS_WITH(create_hdf5(path, {{"a", Hdf5Type::f32, {1}}, {"a", Hdf5Type::f32, {1}}}, {}), ContainsSubstring("'a'"));
  CHECK_THROWS_WITH(create_hdf5(path, {}, {}, 100), ContainsSubstring("user block of 100"));
  CHECK_THROWS_WITH(create_hdf5(scratch / "no/such/a.h5", {}, {}), ContainsSubstring("cannot be created"));
  CHECK_THROWS_AS(create_hdf5(path, {}, {}, 100), DataError);

  write_text(path, "no HDF5 here");
  CHECK_THROWS_WITH(read_hdf5_layout(path), ContainsSubstring("a.h5: is not a readable HDF5 file"));
  CHECK_THROWS_WITH(read_hdf5_layout(scratch / "none.h5"), ContainsSubstring("No such file"));
  CHECK_THROWS_WITH(read_hdf5_layout(scratch.path()), ContainsSubstring("not a regular file"));
}

TEST_CASE("reading beyond a file's end names the file and what is missing") {
  const Scratch scratch;
  File file = File::create(scratch / "f");
  file.write_at("hello", 5, 3);
  file.sync();
  CHECK(file.size() == 8);
  char bytes[8];
  file.read_at(bytes, 5, 3);
  CHECK(std::string(bytes, 5) == "hello");
  CHECK_THROWS_WITH(file.read_at(bytes, 6, 4), ContainsSubstring("is truncated: 2 bytes at 8 are missing"));
  commit_file(scratch / "f", scratch / "g");
  CHECK(std::filesystem::exists(scratch / "g"));
  CHECK_FALSE(std::filesystem::exists(scratch / "f"));
  CHECK_THROWS_WITH(commit_file(scratch / "f", scratch / "h"), ContainsSubstring("cannot be renamed"));
}
