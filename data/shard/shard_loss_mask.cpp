// Functions of ShardReader for its loss mask.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/shard/loss_mask.h"
#include "data/shard/shard.h"

namespace trireme {

int64_t ShardReader::trained_tokens() const { return header_.loss_mask ? header_.loss_mask->trained_tokens : tokens(); }
int64_t ShardReader::trained_bytes() const { return header_.loss_mask ? header_.loss_mask->trained_bytes : facts().text_bytes; }

// The whole bytes that hold the bits of tokens [begin, end).
std::vector<uint8_t> ShardReader::read_mask(int64_t begin, int64_t end) const {
  require(0 <= begin && begin <= end && end <= tokens(), text("the loss mask of tokens [", begin, ", ", end, ") of ", tokens()));
  if (begin == end) return {};
  const int64_t first = begin / 8, last = (end - 1) / 8;
  std::vector<uint8_t> mask(static_cast<size_t>(last - first + 1));
  const Paged data = paged_mask();
  PageBuffer buffer;
  for (int64_t at = first; at <= last;) {
    const int64_t stop = std::min(last + 1, (at / data.page + 1) * data.page);
    std::memcpy(&mask[static_cast<size_t>(at - first)], read_page(data, at, stop, buffer), static_cast<size_t>(stop - at));
    at = stop;
  }
  return mask;
}

void ShardReader::read_trained(int64_t begin, std::span<uint8_t> out) const {
  if (!header_.loss_mask) return std::fill(out.begin(), out.end(), 1);
  const std::vector<uint8_t> mask = read_mask(begin, begin + static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = loss_mask_bit(mask, static_cast<size_t>(begin % 8) + i);
}

int64_t ShardReader::count_trained(int64_t begin, int64_t end) const {
  if (!header_.loss_mask) return end - begin;
  int64_t count = 0;
  for (int64_t at = begin; at < end;) {
    const int64_t stop = std::min(end, at + kTokenPage * 8);
    const std::vector<uint8_t> mask = read_mask(at, stop);
    count += count_loss_mask(mask, static_cast<size_t>(at % 8), static_cast<size_t>(at % 8 + stop - at));
    at = stop;
  }
  return count;
}

}  // namespace trireme
