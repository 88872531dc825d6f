// A mutator that knows JSON: it writes values that try a limit, copies parts and nests them, beside
// libFuzzer's own changes. A target that includes it uses it.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "test/fuzz/fuzz.h"

extern "C" {
// libFuzzer's own; absent where each input is run once.
[[gnu::weak]] size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

inline size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  constexpr std::array kWords{"{}",
                              "[]",
                              "[0,0]",
                              "\"\"",
                              "null",
                              "-1",
                              "1e308",
                              "18446744073709551615",
                              "\"\\ud83d\\udea3\"",
                              "[[[[[[[[]]]]]]]]",
                              "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
                              "{\"type\":\"Sequence\",\"pretokenizers\":[]}"};
  std::mt19937 random(seed);
  const auto below = [&](size_t count) { return count == 0 ? 0 : random() % count; };
  if (below(2) == 0 && LLVMFuzzerMutate != nullptr) return LLVMFuzzerMutate(data, size, most);
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t at = below(text.size() + 1), length = below(std::min<size_t>(text.size() - at, 1000) + 1);
  const std::string part = text.substr(at, length);
  switch (below(4)) {
    case 0:
      text.replace(at, below(8), kWords[below(kWords.size())]);
      break;
    case 1:  // the same part many times: wide
      for (size_t count = below(1000); count > 0 && text.size() < most; --count) text.insert(at, part + ",");
      break;
    case 2: {  // a part within many brackets: nested
      const size_t depth = below(300);
      text.insert(at + length, std::string(depth, ']')).insert(at, std::string(depth, '['));
      break;
    }
    default:
      text.insert(at, below(100000), 'x');
  }
  const size_t kept = std::min(text.size(), most);
  std::memcpy(data, text.data(), kept);
  return kept;
}
}
