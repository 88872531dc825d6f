#include "checkpoint/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <set>

#include "base/confined.h"
#include "base/error.h"
#include "base/json_file.h"
#include "base/json_parser.h"
#include "base/printable.h"
#include "kernels/tensor.h"

namespace trireme {

namespace {

constexpr int64_t kLongestHeader = 100'000'000;  // bytes; the limit of Hugging Face's own reader
constexpr JsonLimits kIndexJson{.bytes = 32 << 20, .values = 2'000'000};
constexpr int64_t kMostTensors = 400'000;  // of one file; published ones have up to 1,000
constexpr size_t kShownName = 200;         // bytes of a name in a message
constexpr int64_t kChunk = 1 << 20;        // elements converted at a time
constexpr const char* kIndex = "model.safetensors.index.json";

struct TypeOfTensor {
  const char* name;
  int64_t bytes;
};
constexpr TypeOfTensor kTypes[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8},     {"I64", 8},
                                   {"I32", 4}, {"I16", 2},  {"I8", 1},  {"U8", 1},      {"BOOL", 1},
                                   {"U16", 2}, {"U32", 4},  {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

int64_t bytes_of_type(const std::string& name) {
  for (const TypeOfTensor& type : kTypes)
    if (name == type.name) return type.bytes;
  return 0;
}

std::string name_of(const std::vector<int64_t>& shape) {
  std::string name = "[";
  for (const int64_t size : shape) name += (name.size() > 1 ? ", " : "") + std::to_string(size);
  return name + "]";
}

float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 0x1p-24f;  // a subnormal number, or zero
  return sign != 0 ? -small : small;
}

// One tensor's entry in the header. Offsets count from the beginning of the data.
PublishedTensor parse_entry(const Json& said, const std::string& of) {
  const auto integer = [](const Json& value) { return value.is_natural(); };
  if (!said.is_object() || !said.contains("dtype") || !said["dtype"].is_string() || !said.contains("shape") ||
      !said["shape"].is_array() || !said.contains("data_offsets") || !said["data_offsets"].is_array() ||
      said["data_offsets"].size() != 2 || !std::ranges::all_of(said["data_offsets"], integer) ||
      !std::ranges::all_of(said["shape"], integer))
    throw DataError(of + ": needs dtype, shape and data_offsets");
  PublishedTensor tensor{.type = said["dtype"].get<std::string>(), .shape = {}, .begin = 0, .bytes = 0};
  int64_t bytes = bytes_of_type(tensor.type);
  if (bytes == 0) throw DataError(of + ": dtype '" + printable(tensor.type.substr(0, kShownName)) + "' is not known");
  for (const Json& size : said["shape"]) {
    if (size.get<uint64_t>() > INT64_MAX || __builtin_mul_overflow(bytes, static_cast<int64_t>(size.get<uint64_t>()), &bytes))
      throw DataError(of + ": its shape has more elements than can be counted");
    tensor.shape.push_back(size.get<int64_t>());
  }
  const auto begin = said["data_offsets"][0].get<uint64_t>(), end = said["data_offsets"][1].get<uint64_t>();
  if (begin > end || end > INT64_MAX || end - begin != static_cast<uint64_t>(bytes))
    throw DataError(
        text(of, ": ", tensor.type, " ", name_of(tensor.shape), " is ", bytes, " bytes, its offsets are ", begin, " and ", end));
  tensor.begin = static_cast<int64_t>(begin);
  tensor.bytes = bytes;
  return tensor;
}

std::string header_of(const std::vector<SafetensorsWriter::Entry>& entries, FloatType type) {
  const int64_t unit = type == FloatType::f32 ? 4 : 2;
  Json header;
  header["__metadata__"]["format"] = "pt";  // required by transformers
  int64_t at = 0;
  for (const auto& [name, shape] : entries) {
    int64_t bytes = unit;
    for (const int64_t size : shape) bytes *= size;
    header[name] = {{"dtype", type == FloatType::f32 ? "F32" : "BF16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// The remedy for a directory whose weights are in another format.
std::string remedy_for(const std::string& directory) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) names.insert(entry.path().filename());
  for (const std::string& name : names)
    if (name.starts_with("pytorch_model") && name.ends_with(".bin"))
      return "; convert " + name + " with transformers: python3 -c \"" + conversion_code(directory) + "\"";
  for (const std::string& name : names)
    if (name.ends_with(".gguf") || name.ends_with(".pth") || name.ends_with(".h5") || name.ends_with(".msgpack"))
      return "; " + name + " is in a format that is not read: fetch the model's safetensors";
  return "; fetch the model's safetensors: hf download NAME --local-dir " + directory;
}

}  // namespace

std::string conversion_code(const std::string& directory) {
  return "from transformers import AutoModelForCausalLM as M; M.from_pretrained('" + directory + "').save_pretrained('" +
         directory + "')";
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(File::open_to_read(path)) {
  const int64_t bytes = file_.size();
  uint64_t length = 0;
  if (bytes < 8) throw DataError(text(path, ": of ", bytes, " bytes is not a safetensors file"));
  file_.read_at(&length, 8, 0);
  if (length > kLongestHeader || static_cast<int64_t>(length) > bytes - 8)
    throw DataError(text(path, ": not a safetensors file: a header of ", length, " bytes in a file of ", bytes));
  std::string header(length, '\0');
  file_.read_at(header.data(), static_cast<int64_t>(length), 8);
  const int64_t data = 8 + static_cast<int64_t>(length);
  rehearse(path, [&] { parse_header(header); });
  parse_header(header);
  std::vector<const std::pair<const std::string, PublishedTensor>*> in_order;
  for (const auto& tensor : tensors_) in_order.push_back(&tensor);
  std::ranges::sort(in_order, {}, [](const auto* tensor) {  // of tensors with equal offsets, empty ones come first
    return std::pair(tensor->second.begin, tensor->second.bytes);
  });
  int64_t end = 0;
  for (const auto* const tensor : in_order) {
    const auto& [name, place] = *tensor;
    if (place.begin != end)
      throw DataError(text(path, ": ", printable(name), place.begin < end ? " overlaps the previous tensor" : " follows a gap",
                           " at byte ", place.begin, " of the data"));
    if (__builtin_add_overflow(end, place.bytes, &end)) throw DataError(path + ": its tensors are larger than any file");
  }
  if (end != bytes - data)
    throw DataError(text(path, ": its tensors are ", end, " bytes, the file has ", bytes - data, " for them"));
  for (auto& [name, tensor] : tensors_) tensor.begin += data;
}

// Takes the header's members one by one: the values of all at once would take six times its memory.
void SafetensorsFile::parse_header(std::string_view header) try {
  constexpr JsonLimits kHeader{.depth = 8, .bytes = kLongestHeader, .values = 100'000, .string = 16 << 20, .unique_names = true};
  JsonParser(header, kHeader).parse_members([&](const std::string& name, const Json& said) {
    if (name == "__metadata__") return;
    const std::string shown = printable(name.substr(0, kShownName));
    if (std::ssize(tensors_) == kMostTensors) throw DataError(text(path(), ": has more than ", kMostTensors, " tensors"));
    if (!tensors_.emplace(name, parse_entry(said, path() + ": " + shown)).second)
      throw DataError(path() + ": its header repeats the name '" + shown + "'");
  });
} catch (const JsonError& e) {
  throw DataError(path() + ": its header " + e.what());
}

void SafetensorsFile::read(const std::string& name, int64_t first, int64_t count, float* into) const {
  const PublishedTensor& tensor = tensors_.at(name);
  const int64_t unit = bytes_of_type(tensor.type);
  require(first >= 0 && count >= 0 && first + count <= tensor.bytes / unit, text("elements of ", name, " are out of range"));
  if (tensor.type == "F32") return file_.read_at(into, count * unit, tensor.begin + first * unit);
  const auto convert = [&]<class From>(From, auto to_float) {
    std::vector<From> from(static_cast<size_t>(std::min(count, kChunk)));
    for (int64_t done = 0; done < count; done += kChunk) {
      const int64_t some = std::min(kChunk, count - done);
      file_.read_at(from.data(), some * unit, tensor.begin + (first + done) * unit);
      std::transform(from.begin(), from.begin() + some, into + done, to_float);
    }
  };
  if (tensor.type == "BF16")
    convert(uint16_t{}, [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); });
  else if (tensor.type == "F16")
    convert(uint16_t{}, from_half);
  else if (tensor.type == "F64")
    convert(double{}, [](double value) { return static_cast<float>(value); });
  else
    throw DataError(path() + ": " + name + " is of type " + tensor.type + ", weights are F32, BF16, F16 or F64");
}

PublishedWeights::PublishedWeights(const std::string& path, std::function<void()> moved) : path_(path), moved_(std::move(moved)) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths{path};
  std::map<std::string, std::string> indexed;  // tensor -> file
  if (fs::is_directory(path)) {
    const std::string index = path + "/" + kIndex;
    paths = {path + "/model.safetensors"};
    if (!fs::exists(paths.front()) && !fs::exists(index))
      throw DataError(path + ": holds no model.safetensors and no " + kIndex + remedy_for(path));
    if (!fs::exists(paths.front())) {
      const Json whole = read_json(index, kIndexJson, kIndex);
      if (!whole.is_object() || !whole.contains("weight_map") || !whole["weight_map"].is_object())
        throw DataError(index + ": has no weight_map");
      std::set<std::string> files;
      for (const auto& [name, file] : whole["weight_map"].members()) {
        if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
          throw DataError(index + ": the file name of " + name + " is invalid");
        indexed[name] = path + "/" + file.get<std::string>();
        files.insert(indexed[name]);
      }
      paths.assign(files.begin(), files.end());
    }
  }
  for (const std::string& file : paths) {
    files_.emplace_back(file);
    for (const auto& [name, tensor] : files_.back().tensors())
      if (!file_of_.emplace(name, files_.size() - 1).second) throw DataError(file + ": " + name + " is also in another file");
  }
  for (const auto& [name, file] : indexed)
    if (const auto found = file_of_.find(name); found == file_of_.end() || files_[found->second].path() != file)
      throw DataError(file + ": " + name + ", which " + kIndex + " lists in it, is missing");
}

std::vector<std::string> PublishedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const PublishedTensor* PublishedWeights::find(const std::string& name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : &files_[found->second].tensors().at(name);
}

void PublishedWeights::read(const std::string& name, int64_t first, int64_t count, float* into) const {
  constexpr int64_t kAtOnce = 16 << 20;  // elements
  for (int64_t done = 0; done < count; done += kAtOnce) {
    files_[file_of_.at(name)].read(name, first + done, std::min(kAtOnce, count - done), into + done);
    if (moved_) moved_();
  }
}

int64_t bytes_of(const std::vector<SafetensorsWriter::Entry>& entries, FloatType type) {
  int64_t bytes = 8 + static_cast<int64_t>(header_of(entries, type).size());
  for (const auto& entry : entries) bytes += elements_of(entry.shape) * (type == FloatType::f32 ? 4 : 2);
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, FloatType type)
    : path_(path), type_(type), file_(File::create(path + ".tmp")) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<Entry>& entries, FloatType type)
    : SafetensorsWriter(path, type) {
  for (const Entry& entry : entries) left_ += elements_of(entry.shape);
  const std::string header = header_of(entries, type);
  const uint64_t length = header.size();
  write(&length, 8);
  write(header.data(), static_cast<int64_t>(length));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!committed_) unlink(file_.path().c_str());
}

void SafetensorsWriter::write(const void* bytes, int64_t count) {
  file_.write_at(bytes, count, written_);
  written_ += count;
}

void SafetensorsWriter::append(const float* values, int64_t count) {
  require(count <= left_, text(path_, ": ", count - left_, " elements too many"));
  left_ -= count;
  if (type_ == FloatType::f32) return write(values, 4 * count);
  std::vector<Bf16> rounded(static_cast<size_t>(std::min(count, kChunk)));
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t some = std::min(kChunk, count - done);
    std::transform(values + done, values + done + some, rounded.begin(), [](float value) { return Bf16(value); });
    write(rounded.data(), 2 * some);
  }
}

void SafetensorsWriter::commit() {
  require(left_ == 0, text(left_, " elements of ", path_, " are missing"));
  file_.sync();
  commit_file(file_.path(), path_);
  committed_ = true;
}

}  // namespace trireme
