#include "data/text/unpacker.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace trireme {

namespace {

constexpr ptrdiff_t kUnpackedAtOnce = 128 << 10;  // bytes unpacked by one call

class Gzip final : public Unpacker {
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

class Zstd final : public Unpacker {
 public:
  Zstd() {  // `zstd --long=31` makes the largest windows; as they are set, those beyond 128 MiB would be refused
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  void reset() override {
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    ended_ = true;
  }
  bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) override {
    ZSTD_inBuffer from{in, static_cast<size_t>(in_end - in), 0};
    // Not too much at once: text before damage is lost with the rest of the same call.
    ZSTD_outBuffer to{out, static_cast<size_t>(std::min<ptrdiff_t>(out_end - out, kUnpackedAtOnce)), 0};
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

class Xz final : public Unpacker {
 public:
  Xz() { begin(); }
  ~Xz() override { lzma_end(&stream_); }
  void reset() override {
    lzma_end(&stream_);
    stream_ = LZMA_STREAM_INIT;
    begin();
  }
  bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(in);
    stream_.avail_in = static_cast<size_t>(in_end - in);
    stream_.next_out = reinterpret_cast<uint8_t*>(out);
    stream_.avail_out = static_cast<size_t>(std::min<ptrdiff_t>(out_end - out, kUnpackedAtOnce));
    // Several streams may follow one another, so that only the end of the file ends the last.
    const lzma_ret status = lzma_code(&stream_, in == in_end ? LZMA_FINISH : LZMA_RUN);
    in = reinterpret_cast<const char*>(stream_.next_in);
    out = reinterpret_cast<char*>(stream_.next_out);
    if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR) problem = reason(status);
    return status == LZMA_STREAM_END || stream_.total_in == 0;
  }

 private:
  void begin() {
    if (lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK) throw Error("liblzma cannot begin");
  }
  static const char* reason(lzma_ret status) {
    switch (status) {
      case LZMA_FORMAT_ERROR:
        return "not in the xz format";
      case LZMA_OPTIONS_ERROR:
        return "made with options that liblzma does not know";
      case LZMA_MEM_ERROR:
        return "out of memory";
      default:
        return "damaged";
    }
  }
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Bzip2 final : public Unpacker {
 public:
  Bzip2() { begin(); }
  ~Bzip2() override { BZ2_bzDecompressEnd(&stream_); }
  void reset() override {
    next_stream();
    ended_ = true;
  }
  bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) override {
    if (in == in_end && ended_) return true;
    if (ended_ && begun_) next_stream();  // files may be several streams, one after the other
    ended_ = false;
    begun_ = true;
    stream_.next_in = const_cast<char*>(in);
    stream_.avail_in = static_cast<unsigned>(in_end - in);
    stream_.next_out = out;
    stream_.avail_out = static_cast<unsigned>(std::min<ptrdiff_t>(out_end - out, kUnpackedAtOnce));
    const int status = BZ2_bzDecompress(&stream_);
    in = stream_.next_in;
    out = stream_.next_out;
    if (status == BZ_STREAM_END) ended_ = true;
    if (status != BZ_OK && status != BZ_STREAM_END)
      problem = status == BZ_DATA_ERROR_MAGIC ? "not in the bzip2 format" : status == BZ_MEM_ERROR ? "out of memory" : "damaged";
    return ended_;
  }

 private:
  void begin() {
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw Error("libbz2 cannot begin");
  }
  void next_stream() {
    BZ2_bzDecompressEnd(&stream_);
    stream_ = {};
    begin();
    begun_ = false;
  }
  bz_stream stream_{};
  bool ended_ = true, begun_ = false;
};

template <class Format>
std::unique_ptr<Unpacker> make_unpacker() {
  return std::make_unique<Format>();
}

constexpr std::array<std::pair<const char*, std::unique_ptr<Unpacker> (*)()>, 4> kPackings{
    {{".gz", make_unpacker<Gzip>}, {".zst", make_unpacker<Zstd>}, {".xz", make_unpacker<Xz>}, {".bz2", make_unpacker<Bzip2>}}};

}  // namespace

std::unique_ptr<Unpacker> unpacker_for(const std::string& path) {
  for (const auto& [suffix, make] : kPackings)
    if (path.ends_with(suffix)) return make();
  return nullptr;
}

std::string unpacked_name(const std::string& path) {
  for (const auto& [suffix, make] : kPackings)
    if (path.ends_with(suffix)) return path.substr(0, path.size() - std::string_view(suffix).size());
  return path;
}

}  // namespace trireme
