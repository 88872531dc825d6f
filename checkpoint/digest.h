// Digests: what makes a damaged byte visible. XXH3 of 64 bits over stored bytes, by MiB page; and a sum over elements that does not
// depend on how a tensor is cut.
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

std::optional<uint64_t> from_hex(std::string_view digits);  // of exactly the form that hex() gives
std::string random_id();                                    // such digits, from the system's randomness

inline constexpr int64_t kPage = 1 << 20;
constexpr int64_t pages_of(int64_t bytes) { return (bytes + kPage - 1) / kPage; }

// Calls job(i) for each i below `jobs`, if they are `many` by all threads of this one, and throws what one of them threw: no other
// is begun then.
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
// A piece's digest: the digest of its pages' digests, so that one page can be checked, and found, without the others.
uint64_t digest_of_pages(const std::vector<uint64_t>& pages);

// The share of `count` elements, the first of which is element `first` of its global tensor (row-major), in the tensor's digest:
// the sum, modulo 2^64, of a mix of each element's index and bits. Shares of any cut of a tensor add up to the same.
uint64_t element_digest(const void* elements, Dtype dtype, int64_t first, int64_t count);

}  // namespace trireme
