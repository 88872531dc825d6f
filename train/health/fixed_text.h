// FixedText: text in memory of its own, which a signal handler may write.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

// Cuts off what does not fit.
class FixedText {
 public:
  FixedText& add(std::string_view text) {
    const size_t count = std::min(text.size(), bytes_.size() - 1 - size_);
    std::copy_n(text.begin(), count, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += count;
    return *this;
  }
  FixedText& add(int64_t number, unsigned base = 10) {
    std::array<char, 24> digits;
    size_t at = digits.size();
    const bool minus = number < 0 && base == 10;
    auto rest = minus ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    do digits[--at] = "0123456789abcdef"[rest % base];
    while ((rest /= base) > 0);
    return add(minus ? "-" : "").add(std::string_view(&digits[at], digits.size() - at));
  }
  // A text as JSON writes it between quotes.
  FixedText& add_json(std::string_view text) {
    for (const char c : text)
      c == '"' || c == '\\' ? add("\\").add({&c, 1}) : add(static_cast<unsigned char>(c) < 0x20 ? " " : std::string_view(&c, 1));
    return *this;
  }
  void put(int file) const { (void)!write(file, bytes_.data(), size_); }
  std::string_view text() const { return {bytes_.data(), size_}; }
  const char* c_str() { return bytes_[size_] = '\0', bytes_.data(); }

 private:
  std::array<char, 4096> bytes_{};
  size_t size_ = 0;
};

}  // namespace trireme
