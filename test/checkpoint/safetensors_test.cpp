// safetensors: what is written reads back, and an invalid header is refused by name.
#include "checkpoint/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/tensor.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

// A file with this header and this many bytes of data.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> all_of(const PublishedWeights& weights, const std::string& name, size_t count) {
  std::vector<float> values(count);
  weights.read(name, 0, static_cast<int64_t>(count), values.data());
  return values;
}

const std::vector<SafetensorsWriter::Entry> kTwo{{"b", {2, 3}}, {"a", {4}}};

void write_two(const std::string& path, FloatType type) {
  SafetensorsWriter writer(path, kTwo, type);
  const float values[] = {1, -2, 0.5f, 3e38f, 1e-40f, -0.0f, 1.00390625f, 7, 8, 9};
  writer.append(values, 4);  // in other parts than the tensors
  writer.append(values + 4, 6);
  writer.commit();
}

}  // namespace

TEST_CASE("weights that are written as safetensors are read again, f32 to the bit and bf16 rounded to nearest even") {
  const Scratch scratch;
  const float b[] = {1, -2, 0.5f, 3e38f, 1e-40f, -0.0f}, a[] = {1.00390625f, 7, 8, 9};
  for (const FloatType type : {FloatType::f32, FloatType::bf16}) {
    const std::string path = scratch / "model.safetensors";
    write_two(path, type);
    CHECK(static_cast<int64_t>(std::filesystem::file_size(path)) == bytes_of(kTwo, type));
    CHECK(std::filesystem::file_size(path) % 2 == 0);
    const PublishedWeights weights(scratch.path());
    CHECK(weights.names() == std::vector<std::string>{"a", "b"});
    CHECK(weights.find("b")->shape == std::vector<int64_t>{2, 3});
    CHECK(weights.find("c") == nullptr);
    for (size_t i = 0; i < 6; ++i) {
      const float expected = type == FloatType::f32 ? b[i] : static_cast<float>(Bf16(b[i]));
      CHECK(std::bit_cast<uint32_t>(all_of(weights, "b", 6)[i]) == std::bit_cast<uint32_t>(expected));
    }
    CHECK(all_of(weights, "a", 4)[0] == (type == FloatType::f32 ? a[0] : 1.0f));
    float one = 0;
    weights.read("a", 2, 1, &one);
    CHECK(one == 8);
    std::filesystem::remove(path);
  }
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("halves and doubles are read as the numbers they are") {
  const Scratch scratch;
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x8000, 0x3555, 0x7e00};
  const double numbers[] = {1, -2, 0x1p-24, -0x3ffp-24, 65504, INFINITY, -INFINITY, -0.0, 0.333251953125, NAN};
  std::string data(sizeof halves + sizeof numbers, '\0');
  std::memcpy(data.data(), halves, sizeof halves);
  std::memcpy(data.data() + sizeof halves, numbers, sizeof numbers);
  write(scratch / "f.safetensors", file_of(R"({"h":{"dtype":"F16","shape":[10],"data_offsets":[0,20]},)"
                                           R"("d":{"dtype":"F64","shape":[2,5],"data_offsets":[20,100]}})",
                                           data));
  const PublishedWeights weights(scratch / "f.safetensors");
  const auto h = all_of(weights, "h", 10), d = all_of(weights, "d", 10);
  for (size_t i = 0; i < 9; ++i) {
    CHECK(h[i] == static_cast<float>(numbers[i]));
    CHECK(std::signbit(h[i]) == std::signbit(numbers[i]));
    CHECK(d[i] == h[i]);
  }
  CHECK((std::isnan(h[9]) && std::isnan(d[9])));
}

TEST_CASE("a file that is given up leaves nothing behind") {
  const Scratch scratch;
  { const SafetensorsWriter writer(scratch / "x", kTwo, FloatType::f32); }
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("the problem of damaged or forged safetensors is named") {
  const Scratch scratch;
  const std::string path = scratch / "x.safetensors", good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                    eight(8, 'x');
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string header = good;
    return header.replace(header.find(from), from.size(), to);
  };
  const std::string two = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":)";
  const std::string huge = "9223372036854775807";
  const std::pair<std::string, const char*> cases[] = {
      {"", "of 0 bytes is not a safetensors file"},
      {"1234567", "of 7 bytes is not a safetensors file"},
      {std::string(8, '\xff'), "not a safetensors file: a header of 18446744073709551615 bytes"},
      {std::string("\x09\0\0\0\0\0\0\0", 8) + "{}", "a header of 9 bytes in a file of 10"},
      {file_of("", ""), "its header is not JSON"},
      {file_of("{", ""), "its header is not JSON"},
      {file_of("[]", ""), "its header is not JSON: byte 1: an object is expected"},
      {file_of("12", ""), "its header is not JSON: byte 1: an object is expected"},
      {file_of("\xff\xfe", ""), "its header is not JSON"},
      {file_of(std::string(100000, '['), ""), "its header is not JSON"},
      {file_of(R"({"a":1})", ""), "a: needs dtype, shape and data_offsets"},
      {file_of(R"({"a":{}})", ""), "a: needs dtype, shape and data_offsets"},
      {file_of(with("\"dtype\":\"F32\"", "\"dtype\":32"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[2]", "2"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[2]", "[-2]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[2]", "[2.0]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[2]", "[\"2\"]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[0,8]", "[0]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[0,8]", "[0,8,16]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[0,8]", "[-8,0]"), eight), "a: needs dtype, shape and data_offsets"},
      {file_of(with("[0,8]", "[8,0]"), eight), "a: F32 [2] is 8 bytes, its offsets are 8 and 0"},
      {file_of(with("[0,8]", "[0,4]"), eight), "a: F32 [2] is 8 bytes, its offsets are 0 and 4"},
      {file_of(with("[2]", "[3]"), eight), "a: F32 [3] is 12 bytes, its offsets are 0 and 8"},
      {file_of(with("F32", "F31"), eight), "a: dtype 'F31' is not known"},
      {file_of(with("[2]", "[" + huge + ",2]"), eight), "a: its shape has more elements than can be counted"},
      {file_of(with("[2]", "[18446744073709551615]"), eight), "a: its shape has more elements than can be counted"},
      {file_of(with("[2]", "[4294967296,4294967296]"), eight), "a: its shape has more elements than can be counted"},
      {file_of(with("[0,8]", "[0,18446744073709551615]"), eight), "its offsets are 0 and 18446744073709551615"},
      {file_of(with("[2]", "[0]").replace(with("[2]", "[0]").find("[0,8]"), 5, "[" + huge + "," + huge + "]"), ""),
       "a follows a gap"},
      {file_of(with("[0,8]", "[4,12]"), eight + "1234"), "a follows a gap at byte 4 of the data"},
      {file_of(two + "[4,8]}}", eight), "b overlaps the previous tensor at byte 4 of the data"},
      {file_of(two + "[12,16]}}", eight + eight), "b follows a gap at byte 12 of the data"},
      {file_of(good, "1234567"), "its tensors are 8 bytes, the file has 7 for them"},
      {file_of(good, eight + "9"), "its tensors are 8 bytes, the file has 9 for them"},
      {file_of(good.substr(0, good.size() - 1) + "," + good.substr(1), eight), "its header repeats the name 'a'"},
  };
  for (const auto& [bytes, message] : cases) {
    INFO(message);
    write(path, bytes);
    CHECK_THROWS_AS(SafetensorsFile(path), DataError);
    CHECK_THROWS_WITH(SafetensorsFile(path), ContainsSubstring(path) && ContainsSubstring(message));
  }
  write(path, file_of(with("F32", "I32"), eight));
  float value = 0;
  CHECK_THROWS_WITH(SafetensorsFile(path).read("a", 0, 1, &value), ContainsSubstring("a is of type I32, weights are F32"));
  CHECK_THROWS_WITH(SafetensorsFile(scratch.path()), ContainsSubstring("is not a regular file"));
  CHECK_THROWS_WITH(SafetensorsFile(scratch / "none"), ContainsSubstring("cannot be opened"));
}

TEST_CASE("every cut and every changed byte of a small safetensors file is refused or reads within it") {
  const Scratch scratch;
  const std::string path = scratch / "x.safetensors";
  write_two(path, FloatType::f32);
  const std::string whole = read_bytes(path);
  const auto look = [&](const std::string& bytes) {
    write(path, bytes);
    try {
      const PublishedWeights weights(path);
      for (const std::string& name : weights.names()) {
        int64_t count = 1;
        for (const int64_t size : weights.find(name)->shape) count *= size;
        if (weights.find(name)->type == "F32") all_of(weights, name, static_cast<size_t>(count));
      }
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  for (size_t length = 0; length < whole.size(); ++length) CHECK_FALSE(look(whole.substr(0, length)));
  for (size_t at = 0; at < whole.size(); ++at)
    for (const char flip : {1, 16, 32}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      look(changed);
    }
  CHECK(look(whole));
}

TEST_CASE("weights in several files are found by their index, which must be right") {
  const Scratch scratch;
  const auto one = [&](const std::string& file, const std::string& name) {
    SafetensorsWriter writer(scratch / file, {{name, {1}}}, FloatType::f32);
    const float value = 5;
    writer.append(&value, 1);
    writer.commit();
  };
  one("1.safetensors", "a");
  one("2.safetensors", "b");
  const std::string index = scratch / "model.safetensors.index.json";
  write(index, R"({"metadata":{},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  CHECK(PublishedWeights(scratch.path()).names() == std::vector<std::string>{"a", "b"});
  CHECK(all_of(PublishedWeights(scratch.path()), "b", 1)[0] == 5);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})",
       "c, which model.safetensors.index.json lists in it, is missing"},
      {R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})", "is missing"},
      {R"({"weight_map":{"a":"../1.safetensors"}})", "the file name of a is invalid"},
      {R"({"weight_map":{"a":7}})", "the file name of a is invalid"},
      {R"({"weight_map":{"a":"3.safetensors"}})", "3.safetensors: cannot be opened"},
      {R"({"weight_map":[]})", "has no weight_map"},
      {R"({)", "is not JSON"},
  };
  for (const auto& [text, message] : wrong) {
    write(index, text);
    CHECK_THROWS_WITH(PublishedWeights(scratch.path()), ContainsSubstring(message));
  }
  std::filesystem::remove(index);
  const std::string empty = scratch.path() + ": holds no model.safetensors and no model.safetensors.index.json; ";
  CHECK_THROWS_WITH(PublishedWeights(scratch.path()),
                    empty + "fetch the model's safetensors: hf download NAME --local-dir " + scratch.path());
  write_text(scratch / "tf_model.h5", "");
  CHECK_THROWS_WITH(PublishedWeights(scratch.path()),
                    empty + "tf_model.h5 is in a format that is not read: fetch the model's safetensors");
  write_text(scratch / "pytorch_model.bin", "");
  CHECK_THROWS_WITH(PublishedWeights(scratch.path()),
                    empty +
                        "convert pytorch_model.bin with transformers: python3 -c \"from transformers import AutoModelForCausalLM "
                        "as M; M.from_pretrained('" +
                        scratch.path() + "').save_pretrained('" + scratch.path() + "')\"");
  one("2.safetensors", "a");
  write(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  CHECK_THROWS_WITH(PublishedWeights(scratch.path()), ContainsSubstring("a is also in another file"));
}
