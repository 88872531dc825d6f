#include "data/shard/number_table.h"

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"

namespace trireme {

namespace {

constexpr int64_t kBlock = 512;          // numbers in 4 KiB
constexpr int64_t kPiece = 16 * kBlock;  // that are read at once

}  // namespace

int64_t NumberTable::read_all(const File& file) const {
  std::vector<int64_t> firsts, some;
  std::vector<uint64_t> digests;
  StreamDigest all;
  Check check = check_;
  std::string problem;
  for (int64_t at = 0; at < size(); at += kPiece) {
    some.resize(static_cast<size_t>(std::min(kPiece, size() - at)));
    file.read_at(some.data(), std::ssize(some) * 8, dataset_.offset + at * 8);
    all.add(some.data(), std::ssize(some) * 8);
    for (size_t i = 0; i < some.size(); i += kBlock) {
      const auto count = static_cast<int64_t>(std::min<size_t>(kBlock, some.size() - i));
      firsts.push_back(some[i]);
      digests.push_back(digest(&some[i], count * 8));
    }
    if (check && problem.empty()) problem = check(at, some);
  }
  if (check && problem.empty()) problem = check(size(), {});
  if (all.value() != dataset_.digest)
    throw DataError(text(file.path(), ": the ", dataset_.name, " are damaged: their digest does not match"));
  if (!problem.empty()) throw DataError(file.path() + ": " + problem);
  const std::lock_guard lock(mutex_);
  if (!loaded_) firsts_ = std::move(firsts), digests_ = std::move(digests);
  loaded_ = true;
  return size() * 8;
}

void NumberTable::load(const File& file) const {
  if (!loaded_) read_all(file);
}

uint64_t NumberTable::next_identity() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// A thread keeps the block that it has read last: those who walk through all documents want it again.
const std::vector<int64_t>& NumberTable::block(const File& file, int64_t number) const {
  struct Kept {
    uint64_t table = 0;
    int64_t number = 0;
    std::vector<int64_t> numbers{};
  };
  thread_local Kept kept;
  std::vector<int64_t>& numbers = kept.numbers;
  if (kept.table == identity_ && kept.number == number) return numbers;
  kept.table = 0;
  numbers.resize(static_cast<size_t>(std::min(kBlock, size() - number * kBlock)));
  const int64_t bytes = std::ssize(numbers) * 8;
  file.read_at(numbers.data(), bytes, dataset_.offset + number * kBlock * 8);
  if (digest(numbers.data(), bytes) != digests_[static_cast<size_t>(number)])
    throw DataError(text(file.path(), ": the ", dataset_.name, " are damaged: they have changed since they were checked"));
  kept.table = identity_, kept.number = number;
  return numbers;
}

int64_t NumberTable::first(const File& file) const {
  load(file);
  return firsts_.front();
}

int64_t NumberTable::at(const File& file, int64_t index) const {
  require(0 <= index && index < size(), text("number ", index, " of ", size()));
  load(file);
  return block(file, index / kBlock)[static_cast<size_t>(index % kBlock)];
}

std::vector<int64_t> NumberTable::between(const File& file, int64_t begin, int64_t end) const {
  require(0 <= begin && begin <= end && end <= size(), text("numbers [", begin, ", ", end, ") of ", size()));
  load(file);
  std::vector<int64_t> found;
  for (int64_t at = begin; at < end;) {
    const int64_t first = at / kBlock * kBlock, stop = std::min(end, first + kBlock);
    const std::vector<int64_t>& numbers = block(file, at / kBlock);
    found.insert(found.end(), numbers.begin() + (at - first), numbers.begin() + (stop - first));
    at = stop;
  }
  return found;
}

int64_t NumberTable::first_above(const File& file, int64_t value) const {
  load(file);
  const auto after = std::ranges::upper_bound(firsts_, value);
  if (after == firsts_.begin()) return 0;
  const int64_t number = after - firsts_.begin() - 1;
  const std::vector<int64_t>& numbers = block(file, number);
  return number * kBlock + (std::ranges::upper_bound(numbers, value) - numbers.begin());
}

}  // namespace trireme
