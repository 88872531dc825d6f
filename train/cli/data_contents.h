// Contents of shards, as words for people.
#pragma once

#include <cstdint>
#include <string>

#include "data/build/split_writer.h"

namespace trireme {

// "12 tokens, 3 documents, 1.5 KiB of text, 4.20 bytes per token".
std::string data_contents(int64_t tokens, int64_t documents, int64_t text_bytes);

// "12.34 %"; of a whole of 0: "0.00 %".
std::string percent(int64_t part, int64_t whole);

// Prints the shards of a split, with its targets and its rows if it has them. Nothing for a split without shards.
void say_split(const std::string& name, const SplitSummary& split);

}  // namespace trireme
