#include "base/digest.h"

#include <xxhash.h>

namespace trireme {

uint64_t digest(const void* bytes, int64_t count) { return XXH3_64bits(bytes, static_cast<size_t>(count)); }

struct StreamDigest::State {
  XXH3_state_t* of_library = XXH3_createState();
  State() {
    if (of_library == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(of_library);
  }
  ~State() { XXH3_freeState(of_library); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

StreamDigest::StreamDigest() : state_(std::make_unique<State>()) {}
StreamDigest::~StreamDigest() = default;

void StreamDigest::add(const void* bytes, int64_t count) {
  XXH3_64bits_update(state_->of_library, bytes, static_cast<size_t>(count));
}
uint64_t StreamDigest::value() const { return XXH3_64bits_digest(state_->of_library); }

}  // namespace trireme
