// Digests that detect damaged bytes. Stored bytes have 64-bit XXH3, by pages of 1 MiB; elements have
// a sum that does not depend on how a tensor is cut.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "kernels/tensor.h"

namespace trireme {

std::optional<uint64_t> from_hex(std::string_view digits);  // accepts only the form that hex() returns
std::string random_id();                                    // 16 hex digits from the system's random source

inline constexpr int64_t kPage = 1 << 20;
constexpr int64_t pages_of(int64_t bytes) { return (bytes + kPage - 1) / kPage; }

// Calls job(i) for each i below `jobs`: on all threads of this one if they are `many`. Rethrows the
// first error; no job begins after it.
template <class Job>
void in_parallel(int64_t jobs, bool many, Job job) {
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
#pragma omp parallel for schedule(dynamic) if (many)
  for (int64_t i = 0; i < jobs; ++i) {
    if (failed) continue;
    try {
      job(i);
    } catch (...) {
      failed = true;
#pragma omp critical(first_failure_of_a_job)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Calls page(index, begin, count) for each page of `bytes` bytes, many pages in parallel.
template <class Page>
void for_each_page(int64_t bytes, Page page) {
  in_parallel(pages_of(bytes), pages_of(bytes) >= 8, [&](int64_t i) { page(i, i * kPage, std::min(kPage, bytes - i * kPage)); });
}

std::vector<uint64_t> page_digests(const void* bytes, int64_t count);
// Digest of a piece: the digest of its pages' digests. A single page can be checked, and damage
// located, without the others.
uint64_t digest_of_pages(const std::vector<uint64_t>& pages);

// Share of `count` elements in their tensor's digest: the sum, modulo 2^64, of a mix of each
// element's index and bits. `first` is the row-major index of the first in the global tensor. The
// shares of any cut of a tensor add up to the same sum.
uint64_t element_digest(const void* elements, Dtype dtype, int64_t first, int64_t count);

}  // namespace trireme
