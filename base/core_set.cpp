#include "base/core_set.h"

#include <sched.h>

#include <bit>

namespace trireme {

CoreSet CoreSet::of_this_thread() { return of_process(0); }

CoreSet CoreSet::of_process(int32_t process) {
  CoreSet its;
  if (sched_getaffinity(process, sizeof its.words_, reinterpret_cast<cpu_set_t*>(its.words_.data())) != 0) return {};
  return its;
}

CoreSet::CoreSet(const std::vector<int>& cores) {
  for (const int core : cores)
    if (core >= 0 && core < kMost) words_[static_cast<size_t>(core / 64)] |= uint64_t{1} << core % 64;
}

bool CoreSet::has(int core) const {
  return core >= 0 && core < kMost && (words_[static_cast<size_t>(core / 64)] >> core % 64 & 1) != 0;
}

int CoreSet::count() const {
  int sum = 0;
  for (const uint64_t word : words_) sum += std::popcount(word);
  return sum;
}

CoreSet CoreSet::common(const CoreSet& other) const {
  CoreSet both = *this;
  for (size_t i = 0; i < words_.size(); ++i) both.words_[i] &= other.words_[i];
  return both;
}

bool CoreSet::keep_this_thread() const {
  return sched_setaffinity(0, sizeof words_, reinterpret_cast<const cpu_set_t*>(words_.data())) == 0;
}

}  // namespace trireme
