#include "data/text/text_file.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "base/error.h"

namespace trireme {

namespace {

constexpr int64_t kPacked = 1 << 20;  // bytes read at once

class Gzip final : public TextFile::Unpacker {
 public:
  Gzip() {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw Error("zlib cannot begin");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  void reset() override {
    inflateReset(&stream_);
    ended_ = true;
    begun_ = false;
  }
  bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) override {
    while (ended_ && begun_ && in < in_end && *in == 0) ++in;  // tapes fill up with zeros
    if (ended_ && in < in_end) {                               // files may be several such streams, one after the other
      inflateReset(&stream_);
      ended_ = false;
      begun_ = true;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in));
    stream_.avail_in = static_cast<uInt>(in_end - in);
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(out_end - out);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    in = reinterpret_cast<const char*>(stream_.next_in);
    out = reinterpret_cast<char*>(stream_.next_out);
    if (status == Z_STREAM_END) ended_ = true;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      problem = stream_.msg != nullptr ? stream_.msg : "damaged";
    return ended_;
  }

 private:
  z_stream stream_{};
  bool ended_ = true, begun_ = false;
};

class Zstd final : public TextFile::Unpacker {
 public:
  void reset() override {
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    ended_ = true;
  }
  bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) override {
    ZSTD_inBuffer from{in, static_cast<size_t>(in_end - in), 0};
    // Not too much at once: what came in front of damage within one call is not told.
    ZSTD_outBuffer to{out, static_cast<size_t>(std::min<ptrdiff_t>(out_end - out, 128 << 10)), 0};
    const size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
    in += from.pos;
    out += to.pos;
    if (ZSTD_isError(left) != 0)
      problem = ZSTD_getErrorName(left);
    else if (from.pos > 0 || to.pos > 0)
      ended_ = left == 0;
    return ended_;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_{ZSTD_createDCtx()};
  bool ended_ = true;
};

std::unique_ptr<TextFile::Unpacker> unpacker_for(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<Gzip>();
  if (path.ends_with(".zst")) return std::make_unique<Zstd>();
  return nullptr;
}

}  // namespace

TextFile::TextFile(File file, std::string name, int64_t size)
    : path_(std::move(name)), file_(std::move(file)), size_(size), unpacker_(unpacker_for(path_)) {}
TextFile::TextFile(const std::string& path) : TextFile(File::open_to_read(path), path, 0) { size_ = file_.size(); }
TextFile TextFile::standard_input(const std::string& name) { return {File::standard_input(), name, -1}; }
TextFile::~TextFile() = default;
TextFile::TextFile(TextFile&&) noexcept = default;
TextFile& TextFile::operator=(TextFile&&) noexcept = default;

void TextFile::rewind() {
  position_ = 0;
  next_ = end_ = nullptr;
  ended_ = false;
  problem_.clear();
  if (unpacker_) unpacker_->reset();
}

// The file's own next bytes: `count`, or fewer at its end.
int64_t TextFile::read_file(char* into, int64_t count) {
  int64_t now = 0;
  if (size_ < 0) {
    now = file_.read(into, count);
  } else {
    now = std::min(count, size_ - position_);
    file_.read_at(into, now, position_);
  }
  position_ += now;
  return now;
}

int64_t TextFile::read(char* into, int64_t count) {
  if (!unpacker_) {
    const int64_t now = read_file(into, count);
    ended_ = size_ < 0 ? now < count : position_ == size_;
    return now;
  }
  if (!problem_.empty()) throw DataError(problem_);
  char *out = into, *const out_end = into + count;
  while (out < out_end) {
    if (next_ == end_) {
      packed_.resize(kPacked);
      next_ = packed_.data(), end_ = next_ + read_file(packed_.data(), kPacked);
    }
    const char* problem = nullptr;
    const char *const in_before = next_, *const out_before = out;
    const bool may_end = unpacker_->unpack(next_, end_, out, out_end, problem);
    const bool moved = next_ != in_before || out != out_before;
    if (problem == nullptr && moved) continue;
    if (problem != nullptr) problem_ = text(path(), ": cannot be unpacked: ", problem);
    if (problem == nullptr && !may_end) problem_ = path() + ": is cut off: what is packed in it does not end";
    if (!problem_.empty() && out == into) throw DataError(problem_);  // or the next time
    ended_ = problem_.empty();
    break;
  }
  return out - into;
}

std::string unpacked_name(const std::string& path) {
  for (const char* packing : {".gz", ".zst"})
    if (path.ends_with(packing)) return path.substr(0, path.size() - std::string_view(packing).size());
  return path;
}

}  // namespace trireme
