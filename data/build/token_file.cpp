#include "data/build/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace trireme {

namespace {

// karpathy/llm.c, dev/data/data_common.py: 256 32-bit integers in front of the tokens, of which the first are these.
constexpr int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;
constexpr int64_t kLlmcHeader = 256 * 4;

// Megatron-LM, megatron/core/datasets/indexed_dataset.py: the index begins with this and its version.
constexpr std::string_view kMegatron("MMIDIDX\0\0", 9);
struct MegatronType {
  int64_t width;
  bool is_signed;
};

std::optional<MegatronType> megatron_type(uint8_t code) {
  switch (code) {
    case 1:
      return MegatronType{1, false};
    case 2:
      return MegatronType{1, true};
    case 3:
      return MegatronType{2, true};
    case 4:
      return MegatronType{4, true};
    case 5:
      return MegatronType{8, true};
    case 8:
      return MegatronType{2, false};
    default:
      return std::nullopt;  // floats, and what there is not
  }
}

std::string whole_file(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read_at(bytes.data(), std::ssize(bytes), 0);
  return bytes;
}

// Reads numbers one after the other from bytes.
class Bytes {
 public:
  Bytes(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}
  template <class Number>
  Number take() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  template <class Number>
  std::vector<Number> take_all(uint64_t count) {
    if (count > rest_.size() / sizeof(Number)) throw DataError(text(path_, ": is cut off: it has no room for ", count, " numbers"));
    std::vector<Number> numbers(count);
    const std::string_view bytes = take(count * sizeof(Number));
    if (count > 0) std::memcpy(numbers.data(), bytes.data(), bytes.size());  // of none there is no memory
    return numbers;
  }
  size_t left() const { return rest_.size(); }
  std::string_view take(size_t count) {
    if (count > rest_.size()) throw DataError(path_ + ": is cut off");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view rest_;
  const std::string& path_;
};

// The value of a key in the dictionary that a .npy begins with, as Python writes it.
std::string_view value_in(std::string_view dictionary, std::string_view key) {
  const size_t at = dictionary.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) return {};
  std::string_view value = dictionary.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  if (value.starts_with('(')) return value.substr(0, value.find(')') + 1);
  return value.substr(0, value.find_first_of(",}"));
}

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenFormat format)
    : file_(File::open_to_read(path)), path_(path), format_(format), bytes_(file_.size()) {
  const bool bin = path.ends_with(".bin");
  if (format_ == TokenFormat::automatic)
    format_ = path.ends_with(".npy")                                                    ? TokenFormat::npy
              : bin && std::filesystem::exists(path.substr(0, path.size() - 3) + "idx") ? TokenFormat::megatron
                                                                                        : TokenFormat::llmc;
  if (format_ == TokenFormat::npy)
    open_npy();
  else if (format_ == TokenFormat::megatron)
    open_megatron();
  else if (format_ == TokenFormat::raw16 || format_ == TokenFormat::raw32)
    open_raw();
  else
    open_llmc();
}

// The rest of the file must be the tokens, and nothing else.
void TokenFile::expect_tokens(int64_t tokens, const std::string& said) {
  const int64_t there = bytes_ - begin_;
  if (tokens < 0 || tokens > there / width_ || tokens * width_ != there)
    throw DataError(text(path_, ": ", said, " ", tokens, " tokens of ", width_, " bytes, the file has ", there, " bytes for them"));
  tokens_ = tokens;
}

void TokenFile::open_llmc() {
  std::array<int32_t, 3> header;
  const char* const remedy = "; for tokens without a header, as nanoGPT writes them, give --format raw16 or raw32";
  if (bytes_ < kLlmcHeader) throw DataError(text(path_, ": ", bytes_, " bytes are too few for llm.c's header", remedy));
  file_.read_at(header.data(), sizeof header, 0);
  const auto [magic, version, tokens] = header;
  if (!((magic == kLlmcGpt2 && version == 1) || (magic == kLlmcLlama3 && version == 7)))
    throw DataError(text(path_, ": does not begin as llm.c's tokens do (", kLlmcGpt2, ", 1 or ", kLlmcLlama3, ", 7), but with ",
                         magic, ", ", version, remedy));
  begin_ = kLlmcHeader;
  width_ = magic == kLlmcGpt2 ? 2 : 4;
  expect_tokens(tokens, "its header says");
}

void TokenFile::open_raw() {
  width_ = format_ == TokenFormat::raw16 ? 2 : 4;
  if (bytes_ % width_ != 0) throw DataError(text(path_, ": ", bytes_, " bytes are not whole tokens of ", width_, " bytes"));
  expect_tokens(bytes_ / width_, "it is");
}

void TokenFile::open_megatron() {
  if (!path_.ends_with(".bin")) throw DataError(path_ + ": Megatron's tokens are a .bin beside an .idx: name the .bin");
  const std::string index = path_.substr(0, path_.size() - 3) + "idx", bytes = whole_file(index);
  Bytes in(bytes, index);
  if (in.take(kMegatron.size()) != kMegatron) throw DataError(index + ": does not begin as Megatron's indices do");
  if (const auto version = in.take<uint64_t>(); version != 1)
    throw DataError(text(index, ": is of version ", version, ", 1 is read"));
  const auto code = in.take<uint8_t>();
  const std::optional<MegatronType> type = megatron_type(code);
  if (!type) throw DataError(text(index, ": type ", static_cast<int>(code), " is none of tokens"));
  width_ = type->width;
  is_signed_ = type->is_signed;
  const auto sequences = in.take<uint64_t>(), documents = in.take<uint64_t>();
  const auto lengths = in.take_all<int32_t>(sequences);
  const auto pointers = in.take_all<int64_t>(sequences);
  const auto first_sequences = in.take_all<int64_t>(documents);
  if (in.left() > 0)
    throw DataError(
        text(index, ": has ", in.left(), " bytes too many after its documents; sequences of several modes are not read"));
  std::vector<int64_t> begins{0};
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) throw DataError(text(index, ": sequence ", i, " is of ", lengths[i], " tokens"));
    if (pointers[i] != begins.back() * width_)
      throw DataError(
          text(index, ": sequence ", i, " begins at byte ", pointers[i], ", the one before it ends at ", begins.back() * width_));
    begins.push_back(begins.back() + lengths[i]);
  }
  expect_tokens(begins.back(), "its index says");
  if (first_sequences.empty() || first_sequences.front() != 0 || first_sequences.back() != static_cast<int64_t>(sequences))
    throw DataError(index + ": its documents do not begin with the first sequence and end with the last");
  for (size_t i = 0; i + 1 < first_sequences.size(); ++i) {
    if (first_sequences[i] > first_sequences[i + 1]) throw DataError(text(index, ": document ", i, " ends before it begins"));
    const int64_t start = begins[static_cast<size_t>(first_sequences[i])];
    if (start < begins.back() && (starts_.empty() || starts_.back() < start)) starts_.push_back(start);  // not of empty ones
  }
}

void TokenFile::open_npy() {
  std::array<char, 12> head{};
  file_.read_at(head.data(), std::min<int64_t>(bytes_, 12), 0);
  const auto version = static_cast<uint8_t>(head[6]);
  if (std::string_view(head.data(), 6) != "\x93NUMPY" || version < 1 || version > 3)
    throw DataError(path_ + ": does not begin as NumPy's arrays do");
  uint32_t length = 0;
  std::memcpy(&length, head.data() + 8, version == 1 ? 2 : 4);
  begin_ = (version == 1 ? 10 : 12) + static_cast<int64_t>(length);
  if (begin_ > bytes_ || length > (1 << 20)) throw DataError(path_ + ": is cut off in its header");
  std::string dictionary(length, '\0');
  file_.read_at(dictionary.data(), length, begin_ - length);
  const std::string_view type = value_in(dictionary, "descr"), shape = value_in(dictionary, "shape");
  constexpr std::array<std::pair<std::string_view, MegatronType>, 8> kTypes{{{"'<i2'", {2, true}},
                                                                             {"'|i1'", {1, true}},
                                                                             {"'<u2'", {2, false}},
                                                                             {"'<u4'", {4, false}},
                                                                             {"'<i4'", {4, true}},
                                                                             {"'<i8'", {8, true}},
                                                                             {"'|u1'", {1, false}},
                                                                             {"'<u8'", {8, false}}}};
  const auto* const known = std::ranges::find(kTypes, type, &std::pair<std::string_view, MegatronType>::first);
  if (known == kTypes.end())
    throw DataError(path_ + ": is an array of " + std::string(type) +
                    ", tokens are '|u1', '|i1', '<u2', '<i2', '<u4', '<i4', '<u8' or '<i8'");
  width_ = known->second.width;
  is_signed_ = known->second.is_signed;
  int64_t tokens = 0;
  size_t digits = 0;
  for (const char c : shape.substr(std::min<size_t>(1, shape.size())))
    if ('0' <= c && c <= '9' && digits < 18)
      tokens = 10 * tokens + (c - '0'), ++digits;
    else
      break;
  if (digits == 0 || shape != "(" + std::to_string(tokens) + ",)")
    throw DataError(path_ + ": is an array of shape " + std::string(shape) + ", tokens are flat: (N,)");
  expect_tokens(tokens, "its header says");
}

std::vector<int32_t> TokenFile::next(int64_t most) {
  const int64_t count = std::min(most, tokens_ - taken_);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::string raw(static_cast<size_t>(count * width_), '\0');
  file_.read_at(raw.data(), count * width_, begin_ + taken_ * width_);
  const auto convert = [&]<class Number>(Number) {
    for (int64_t i = 0; i < count; ++i) {
      Number number;
      std::memcpy(&number, raw.data() + i * width_, sizeof number);
      const auto token = static_cast<int64_t>(number);
      if (token < 0 || token > INT32_MAX) throw DataError(text(path_, ": token ", taken_ + i, " is ", token));
      tokens[static_cast<size_t>(i)] = static_cast<int32_t>(token);
    }
  };
  if (width_ == 1)
    is_signed_ ? convert(int8_t{}) : convert(uint8_t{});
  else if (width_ == 2)
    is_signed_ ? convert(int16_t{}) : convert(uint16_t{});
  else if (width_ == 4)
    is_signed_ ? convert(int32_t{}) : convert(uint32_t{});
  else
    is_signed_ ? convert(int64_t{}) : convert(uint64_t{});
  taken_ += count;
  return tokens;
}

}  // namespace trireme
