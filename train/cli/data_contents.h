// Contents of shards, as words for people.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// "12 tokens, 3 documents, 1.5 KiB of text, 4.20 bytes per token".
std::string data_contents(int64_t tokens, int64_t documents, int64_t text_bytes);

// "12.34 %"; of a whole of 0: "0.00 %".
std::string percent(int64_t part, int64_t whole);

}  // namespace trireme
