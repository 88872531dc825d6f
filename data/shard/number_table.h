// Numbers of a dataset of a shard: 8 bytes each, all under one digest. A corpus has a billion of them, so they are read where they
// are wanted. The first use reads all of the dataset once, checks it, and keeps a digest and the first number of each 4 KiB; later
// ones read such a block again, and check it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace trireme {

class NumberTable {
 public:
  struct Dataset {
    const char* name;
    int64_t offset, count;  // bytes; numbers
    uint64_t digest;
  };
  // Gets the numbers from index `first` on, piece by piece; returns what is wrong with them, or "". An empty piece is the last.
  // Each reading starts with a copy.
  using Check = std::function<std::string(int64_t first, std::span<const int64_t> numbers)>;

  NumberTable(const Dataset& dataset, Check check) : dataset_(dataset), check_(std::move(check)) {}

  int64_t size() const { return dataset_.count; }

  // Reads and checks all numbers; returns their bytes. These and all others: DataError if they are damaged. From several threads at
  // once, if wanted.
  int64_t read_all(const File& file) const;

  int64_t first(const File& file) const;  // there is one
  int64_t at(const File& file, int64_t index) const;
  std::vector<int64_t> between(const File& file, int64_t begin, int64_t end) const;  // by index
  // Of rising numbers: index of the first that is larger than `value`.
  int64_t first_above(const File& file, int64_t value) const;

 private:
  static uint64_t next_identity();
  void load(const File& file) const;
  const std::vector<int64_t>& block(const File& file, int64_t number) const;

  const uint64_t identity_ = next_identity();
  const Dataset dataset_;
  const Check check_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> loaded_ = false;
  mutable std::vector<int64_t> firsts_;    // of each block
  mutable std::vector<uint64_t> digests_;  // likewise
};

}  // namespace trireme
