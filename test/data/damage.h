// Damage done to a shard, one bit at a time.
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "data/shard/shard.h"
#include "test/data/scratch.h"

// Number of bytes with a bit whose flip verify() does not notice; one bit of each byte is tried.
// The file is whole before and after.
inline int64_t unnoticed_flips(const std::string& path) {
  const std::string sound = read_text(path);
  trireme::ShardReader(path).verify();
  trireme::File file = trireme::File::open_to_write(path);
  int64_t unnoticed = 0;
  for (size_t i = 0; i < sound.size(); ++i) {
    const char flipped = static_cast<char>(sound[i] ^ (1 << (trireme::philox64(9, i) % 8)));
    file.write_at(&flipped, 1, static_cast<int64_t>(i));
    try {
      trireme::ShardReader(path).verify();
      ++unnoticed;
    } catch (const trireme::DataError&) {
    }
    file.write_at(&sound[i], 1, static_cast<int64_t>(i));
  }
  return unnoticed;
}
