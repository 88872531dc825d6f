// CoreSet: cores that a thread may run on, by the numbers that Linux gives them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace trireme {

class CoreSet {
 public:
  static constexpr int kMost = 8192;  // numbers; a cpu_set_t has 1,024, which a large machine's exceed

  // Empty if the system does not say.
  static CoreSet of_this_thread();
  static CoreSet of_process(int32_t process);  // its first thread's

  CoreSet() = default;
  explicit CoreSet(const std::vector<int>& cores);  // without those that no machine has

  bool has(int core) const;
  int count() const;
  CoreSet common(const CoreSet& other) const;
  // Keeps the calling thread, and threads that it starts from now on, to these cores. False if the system refuses.
  bool keep_this_thread() const;

 private:
  std::array<uint64_t, kMost / 64> words_{};  // a bit for each core, as Linux has them
};

}  // namespace trireme
