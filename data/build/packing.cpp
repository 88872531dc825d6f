#include "data/build/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace trireme {

namespace {

// Rows by the tokens that they have room for: those with equal room as a stack, and a bit for each room that some row has.
class Rooms {
 public:
  explicit Rooms(int64_t row) : rows_(static_cast<size_t>(row) + 1), some_(static_cast<size_t>(row) / 64 + 1, 0) {}

  void put(int64_t row, int64_t room) {
    const auto i = static_cast<size_t>(room);
    rows_[i].push_back(row);
    some_[i / 64] |= uint64_t{1} << i % 64;
  }

  // The smallest room of at least `length`; -1: none.
  int64_t smallest(int64_t length) const {
    const auto from = static_cast<size_t>(length);
    uint64_t word = some_[from / 64] & (~uint64_t{0} << from % 64);
    for (size_t i = from / 64; true; word = some_[i]) {
      if (word != 0) return static_cast<int64_t>(i * 64) + std::countr_zero(word);
      if (++i == some_.size()) return -1;
    }
  }

  // A row with this room, which some row has.
  int64_t take(int64_t room) {
    const auto i = static_cast<size_t>(room);
    const int64_t row = rows_[i].back();
    rows_[i].pop_back();
    if (rows_[i].empty()) some_[i / 64] &= ~(uint64_t{1} << i % 64);
    return row;
  }

 private:
  std::vector<std::vector<int64_t>> rows_;  // by room
  std::vector<uint64_t> some_;
};

// The longest first; of equal ones, the first first.
std::vector<int64_t> by_length(std::span<const int64_t> lengths, int64_t row) {
  std::vector<int64_t> place(static_cast<size_t>(row) + 2, 0);  // where pieces of length row - i begin, at i + 1 their number
  for (const int64_t length : lengths) ++place[static_cast<size_t>(row - length) + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<int64_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<size_t>(place[static_cast<size_t>(row - lengths[i])]++)] = static_cast<int64_t>(i);
  return order;
}

// Rows are numbered anew, in the order of their first pieces.
void number_by_first_piece(Fit& fit) {
  std::vector<int64_t> numbers(static_cast<size_t>(fit.rows), -1);
  int64_t next = 0;
  for (int64_t& row : fit.row_of) {
    int64_t& number = numbers[static_cast<size_t>(row)];
    if (number < 0) number = next++;
    row = number;
  }
}

}  // namespace

Fit best_fit(std::span<const int64_t> lengths, int64_t row) {
  for (const int64_t length : lengths) require(0 < length && length <= row, text("a piece of ", length, " in rows of ", row));
  Fit fit{.row_of = std::vector<int64_t>(lengths.size()), .rows = 0};
  Rooms rooms(row);
  for (const int64_t piece : by_length(lengths, row)) {
    const int64_t length = lengths[static_cast<size_t>(piece)], found = rooms.smallest(length);
    const int64_t taken = found < 0 ? fit.rows++ : rooms.take(found);
    fit.row_of[static_cast<size_t>(piece)] = taken;
    rooms.put(taken, (found < 0 ? row : found) - length);
  }
  number_by_first_piece(fit);
  return fit;
}

Packed pack(const TokenStretch& documents, int64_t row, int32_t filling) {
  const auto tokens = static_cast<int64_t>(documents.tokens.size());
  require(tokens == 0 || (!documents.starts.empty() && documents.starts.front() == 0), text("packing begins within a document"));
  std::vector<int64_t> begins, lengths;
  std::vector<size_t> of;  // each piece's document
  for (size_t i = 0; i < documents.starts.size(); ++i) {
    const int64_t end = i + 1 < documents.starts.size() ? documents.starts[i + 1] : tokens;
    for (int64_t begin = documents.starts[i]; begin < end; begin += row) {
      of.push_back(i);
      begins.push_back(begin);
      lengths.push_back(std::min(row, end - begin));
    }
  }
  const Fit fit = best_fit(lengths, row);
  TokenStretch packed{.tokens = std::vector<int32_t>(static_cast<size_t>(fit.rows * row), filling),
                      .starts = {},
                      .trained = std::vector<uint8_t>(static_cast<size_t>(fit.rows * row), 0)};
  std::vector<int64_t> used(static_cast<size_t>(fit.rows), 0);
  for (size_t i = 0; i < begins.size(); ++i) {
    int64_t& in_row = used[static_cast<size_t>(fit.row_of[i])];
    const int64_t to = fit.row_of[i] * row + in_row;
    in_row += lengths[i];
    packed.starts.push_back(to);
    std::copy_n(documents.tokens.begin() + begins[i], lengths[i], packed.tokens.begin() + to);
    if (documents.trained.empty())
      std::fill_n(packed.trained.begin() + to, lengths[i], 1);
    else
      std::copy_n(documents.trained.begin() + begins[i], lengths[i], packed.trained.begin() + to);
    packed.trained[static_cast<size_t>(to)] = 0;
  }
  std::vector<size_t> order(of.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t piece) { return packed.starts[piece]; });
  std::vector<size_t> sources;
  for (const size_t piece : order) sources.push_back(of[piece]);
  std::ranges::sort(packed.starts);
  return {std::move(packed), std::move(sources)};
}

int64_t count_cut(std::span<const int64_t> starts, int64_t tokens, int64_t row) {
  int64_t cut = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : tokens;
    if (starts[i] / row != (end - 1) / row) ++cut;
  }
  return cut;
}

}  // namespace trireme
