#include "kernels/cuda_facts.h"

namespace trireme {

CudaFacts cuda_facts() { return {.verdict = "built without CUDA"}; }

}  // namespace trireme
