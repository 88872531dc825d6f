// Digests of bytes and their text form.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme {

// 64-bit XXH3 (https://github.com/Cyan4973/xxHash).
uint64_t digest(const void* bytes, int64_t count);
inline uint64_t digest(std::string_view bytes) { return digest(bytes.data(), static_cast<int64_t>(bytes.size())); }

// Digest of bytes that come in pieces.
class StreamDigest {
 public:
  StreamDigest();
  ~StreamDigest();
  StreamDigest(const StreamDigest&) = delete;
  StreamDigest& operator=(const StreamDigest&) = delete;
  void add(const void* bytes, int64_t count);
  uint64_t value() const;  // as digest() of all pieces one after the other

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case digits.
inline std::string hex(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return digits;
}

}  // namespace trireme
