// Width of the vector registers that the CPU kernels are compiled for.
#pragma once

namespace trireme {

inline constexpr int kVectorBytes = TRIREME_VECTOR_BYTES;

}  // namespace trireme
