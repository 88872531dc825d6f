#include "base/digest.h"

#include <xxhash.h>

namespace trireme {

uint64_t digest(const void* bytes, int64_t count) { return XXH3_64bits(bytes, static_cast<size_t>(count)); }

}  // namespace trireme
