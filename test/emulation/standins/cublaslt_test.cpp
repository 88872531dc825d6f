// The stand-in for cuBLASLt refuses mistakes that the library would, each with its reason.
#include <cublasLt.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <functional>
#include <string>

#include "kernels/tensor.h"
#include "test/catch.h"

namespace trireme {
namespace {

// A product as kernels/cuda/cublas.cpp describes one, D [m, n] = A' B by columns; tests spoil a part of it.
struct Call {
  int64_t m = 32, n = 16, k = 48;
  cudaDataType_t of_a = CUDA_R_16BF, of_b = CUDA_R_16BF, of_d = CUDA_R_16BF;
  cublasOperation_t transa = CUBLAS_OP_T, transb = CUBLAS_OP_N;
  int64_t ld_a = 48, ld_b = 48, ld_d = 32, aux_ld = 32;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int bias_type = CUDA_R_16BF;
  size_t offset_a = 0, offset_d = 0, offset_bias = 0, offset_aux = 0, offset_workspace = 0;  // bytes from a multiple of 256
  size_t workspace = 1 << 20;
  uint32_t promised = 16;
  size_t bytes_of_epilogue = 4;
  bool scales = false, aux = true;
  uint64_t variant = 0;
  int64_t other_m = 0;  // of the problem that the algorithm is asked for; 0: the same
  int64_t k_of_b = 0;   // 0: k
};

alignas(256) std::array<std::byte, 1 << 16> memory;
alignas(256) std::array<std::byte, (1 << 20) + 256> workspace_memory;

struct Layouts {
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  Layouts(const Call& c, int64_t m) {
    const bool ta = c.transa != CUBLAS_OP_N;
    cublasLtMatrixLayoutCreate(&a, c.of_a, static_cast<uint64_t>(ta ? c.k : m), static_cast<uint64_t>(ta ? m : c.k), c.ld_a);
    cublasLtMatrixLayoutCreate(&b, c.of_b, static_cast<uint64_t>(c.k_of_b > 0 ? c.k_of_b : c.k), static_cast<uint64_t>(c.n),
                               c.ld_b);
    cublasLtMatrixLayoutCreate(&d, c.of_d, static_cast<uint64_t>(m), static_cast<uint64_t>(c.n), std::max(c.ld_d, m));
  }
};

// The stand-in's answer, "" for success.
std::string answer(const Call& c) {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasStatus_t status = cublasLtCreate(&handle);
  const auto then = [&](const std::function<cublasStatus_t()>& call) {
    if (status == CUBLAS_STATUS_SUCCESS) status = call();
  };
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value, size_t bytes = sizeof(decltype(value))) {
    then([&] { return cublasLtMatmulDescSetAttribute(desc, attribute, &value, bytes); });
  };
  then([&] { return cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F); });
  set(CUBLASLT_MATMUL_DESC_TRANSA, c.transa), set(CUBLASLT_MATMUL_DESC_TRANSB, c.transb);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue, c.bytes_of_epilogue);
  const auto at = [&](size_t offset) { return static_cast<void*>(memory.data() + offset); };
  if (c.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(16384 + c.offset_bias));
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, c.bias_type);
    if (c.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at(20480 + c.offset_aux));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c.aux_ld);
  }
  if (c.scales) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at(0)), set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at(0));
  then([&] { return cublasLtMatmulPreferenceCreate(&preference); });
  const size_t most = 1 << 20;
  then([&] {
    return cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
  });
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    then([&] { return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &c.promised, sizeof c.promised); });
  const Layouts asked(c, c.other_m > 0 ? c.other_m : c.m), meant(c, c.m);
  std::array<cublasLtMatmulHeuristicResult_t, 3> found{};
  int count = 0;
  then([&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, asked.a, asked.b, asked.d, asked.d, preference, 3, found.data(), &count);
  });
  const float one = 1, zero = 0;
  then([&] {
    return cublasLtMatmul(handle, desc, &one, at(256 + c.offset_a), meant.a, at(8192), meant.b, &zero, at(12288 + c.offset_d),
                          meant.d, at(12288 + c.offset_d), meant.d, &found[c.variant].algo,
                          workspace_memory.data() + c.offset_workspace, c.workspace, nullptr);
  });
  return status == CUBLAS_STATUS_SUCCESS ? "" : cublasLtGetStatusString(status);
}

Call eight_bits() {
  Call call;
  call.of_a = call.of_b = CUDA_R_8F_E4M3, call.scales = true;
  return call;
}
Call fused(cublasLtEpilogue_t epilogue) {
  Call call;
  call.epilogue = epilogue;
  return call;
}

}  // namespace

TEST_CASE("the stand-in for cuBLASLt takes products as they are meant", "[cublas]") {
  CHECK(answer({}).empty());
  CHECK(answer(eight_bits()).empty());
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                              CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB})
    CHECK(answer(fused(epilogue)).empty());
}

TEST_CASE("the stand-in for cuBLASLt refuses each of the mistakes that the library refuses", "[cublas]") {
  struct Mistake {
    Call call;
    void (*spoil)(Call&);
    const char* words;
  };
  const Call gelu = fused(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  const std::vector<Mistake> mistakes{
      {{}, [](Call& c) { c.ld_a = 32; }, "invalid value: A: 48 x 32, leading dimension 32, less than its rows"},
      {{}, [](Call& c) { c.k_of_b = 32; }, "B: 32 x 16, leading dimension 48: sums of other lengths"},
      {{}, [](Call& c) { c.of_b = CUDA_R_32F; }, "not supported: A and B of two types"},
      {{}, [](Call& c) { c.promised = 1; }, "not supported: A at a multiple of 1 bytes; 2 are needed"},
      {{}, [](Call& c) { c.offset_a = 8; }, "invalid value: A is not at a multiple of 16 bytes, as was promised"},
      {{}, [](Call& c) { c.other_m = 48; }, "invalid value: an algorithm of another problem"},
      {{}, [](Call& c) { c.variant = 1, c.workspace = 4096; }, "invalid value: a workspace of 4096 bytes is too small"},
      {{}, [](Call& c) { c.offset_workspace = 16; }, "invalid value: the workspace is not at a multiple of 256 bytes"},
      {{}, [](Call& c) { c.bytes_of_epilogue = 8; }, "invalid value: attribute 7 has 4 bytes, not 8"},
      {{}, [](Call& c) { c.scales = true; }, "not supported: scales of operands that are not 8-bit"},
      {gelu, [](Call& c) { c.offset_bias = 4; }, "not supported: a bias that does not begin at a multiple of 16 bytes"},
      {gelu, [](Call& c) { c.bias_type = CUDA_R_32F; }, "not supported: a bias of another type than this product's"},
      {fused(CUBLASLT_EPILOGUE_DGELU), [](Call& c) { c.offset_d = 8192; }, "invalid value: an auxiliary matrix that D replaces"},
      {gelu, [](Call& c) { c.aux = false; }, "invalid value: the epilogue needs an address of its auxiliary matrix"},
      {gelu, [](Call& c) { c.aux_ld = 36; }, "not supported: the auxiliary matrix's leading dimension is not a multiple of 8"},
      {gelu, [](Call& c) { c.aux_ld = 16; }, "invalid value: the auxiliary matrix's leading dimension is less than its rows"},
      {eight_bits(), [](Call& c) { c.transa = CUBLAS_OP_N, c.ld_a = 32; }, "not supported: 8-bit operands: A must be transposed"},
      {eight_bits(), [](Call& c) { c.k = 40; }, "not supported: 8-bit operands: 40 is not a multiple of 16"},
      {eight_bits(), [](Call& c) { c.of_a = c.of_b = CUDA_R_8F_E5M2; }, "not supported: both operands are e5m2"},
      {eight_bits(), [](Call& c) { c.scales = false; }, "invalid value: 8-bit operands without their scales"},
      {eight_bits(), [](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_GELU_AUX; }, "not supported: 8-bit operands with epilogue"}};
  for (const Mistake& mistake : mistakes) {
    CHECK(answer(mistake.call).empty());
    Call call = mistake.call;
    mistake.spoil(call);
    CHECK_THAT(answer(call), ContainsSubstring(mistake.words));
  }
}

}  // namespace trireme
