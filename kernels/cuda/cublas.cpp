// Matrix products by cuBLASLt. It is column-major: c = a b in rows is c' = b' a' in columns of the
// same memory. Its epilogues implement fusion: GELU_AUX, DGELU, and BGRADB for sums over the rows
// of its B. An algorithm is 64 opaque bytes that may be saved and reused with the same version of
// the library.
#include <cublasLt.h>

#include <array>
#include <bit>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/shared_library.h"
#include "kernels/cuda/products.h"
#include "kernels/ops/matmul.h"

namespace trireme {
namespace {

struct CublasLt {
  SharedLibrary library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), "matrix products on a GPU"};
  decltype(&cublasLtCreate) create = library.find<decltype(cublasLtCreate)>("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = library.find<decltype(cublasLtDestroy)>("cublasLtDestroy");
  decltype(&cublasLtGetStatusString) get_status_string = library.find<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
  decltype(&cublasLtGetVersion) get_version = library.find<decltype(cublasLtGetVersion)>("cublasLtGetVersion");
  decltype(&cublasLtMatmulAlgoCheck) matmul_algo_check = library.find<decltype(cublasLtMatmulAlgoCheck)>("cublasLtMatmulAlgoCheck");
  decltype(&cublasLtMatmul) matmul = library.find<decltype(cublasLtMatmul)>("cublasLtMatmul");
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic =
      library.find<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create =
      library.find<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy =
      library.find<decltype(cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute =
      library.find<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create =
      library.find<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy =
      library.find<decltype(cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute =
      library.find<decltype(cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create =
      library.find<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy =
      library.find<decltype(cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy");
};
const CublasLt& lt() {
  static const CublasLt loaded;
  return loaded;
}

void ok(cublasStatus_t status, std::source_location at = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(std::string("cuBLASLt: ") + lt().get_status_string(status), at);
}

template <auto destroy>
struct Destroyer {
  void operator()(auto* handle) const { (lt().*destroy)(handle); }
};
template <class T, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroyer<destroy>>;

using Handle = Owned<cublasLtHandle_t, &CublasLt::destroy>;
using Operation = Owned<cublasLtMatmulDesc_t, &CublasLt::matmul_desc_destroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::matrix_layout_destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::matmul_preference_destroy>;

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::e4m3:
      return CUDA_R_8F_E4M3;
    case Dtype::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

Layout layout(Dtype dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  ok(lt().matrix_layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows));
  return Layout(made);
}

// Named wrapper: the library's own type is anonymous, but nvcc needs a name in standard containers.
struct Algorithm {
  cublasLtMatmulAlgo_t opaque{};
};

// Descriptors and algorithm of products of one shape.
struct Recipe {
  Operation operation;
  Layout a, b, c;
  std::optional<Algorithm> algorithm;  // absent: the library does not support them

  void set(cublasLtMatmulDescAttributes_t attribute, auto value) const {
    ok(lt().matmul_desc_set_attribute(operation.get(), attribute, &value, sizeof value));
  }
  // Sets the addresses, in which products of one shape differ.
  void point_to(const Product& p) const {
    if (p.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.sums != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.sums));
    if (p.pre_activation != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.pre_activation);
    if (p.gelu_input != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.gelu_input);
    if (p.a_scale == nullptr) return;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_scale);
  }
};

// Common alignment of all addresses: 16, the most that any algorithm needs, or a smaller power of
// two.
uint32_t alignment_of(const Product& p) {
  uintptr_t bits = 16;
  for (const void* at : {p.a, p.b, static_cast<const void*>(p.c), static_cast<const void*>(p.pre_activation), p.gelu_input, p.bias,
                         static_cast<const void*>(p.sums)})
    bits |= reinterpret_cast<uintptr_t>(at);
  return static_cast<uint32_t>(bits & -bits);
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  if (p.pre_activation != nullptr) return p.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (p.gelu_input != nullptr) return CUBLASLT_EPILOGUE_DGELU;
  if (p.sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  return p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

Recipe describe(const Product& p) {
  Recipe r;
  cublasLtMatmulDesc_t operation = nullptr;
  ok(lt().matmul_desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  r.operation.reset(operation);
  r.set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  r.set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  r.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias != nullptr) r.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.of_bias));
  if (p.sums != nullptr) r.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  if (p.pre_activation != nullptr || p.gelu_input != nullptr) r.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  // Tensor cores accumulate 8-bit products with less precision than f32 unless promotion is
  // requested, as gradients need.
  if (p.a_scale != nullptr)
    r.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.of_a == Dtype::e4m3 && p.of_b == Dtype::e4m3 ? 1 : 0));
  r.a = p.transpose_b ? layout(p.of_b, p.k, p.n) : layout(p.of_b, p.n, p.k);
  r.b = p.transpose_a ? layout(p.of_a, p.m, p.k) : layout(p.of_a, p.k, p.m);
  r.c = layout(p.of_c, p.n, p.m);
  r.point_to(p);
  return r;
}

// The library's heuristic choices, best first.
std::vector<Algorithm> advice(cublasLtHandle_t handle, const Recipe& r, const Product& p, int most) {
  cublasLtMatmulPreference_t made = nullptr;
  ok(lt().matmul_preference_create(&made));
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    ok(lt().matmul_preference_set_attribute(made, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kProductWorkspace));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, alignment_of(p));
  std::array<cublasLtMatmulHeuristicResult_t, 32> found{};
  int count = 0;
  const cublasStatus_t status =
      lt().matmul_algo_get_heuristic(handle, r.operation.get(), r.a.get(), r.b.get(), r.c.get(), r.c.get(), made,
                                     std::min(most, static_cast<int>(found.size())), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  ok(status);
  std::vector<Algorithm> algorithms;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({found[i].algo});
  return algorithms;
}

using Shape = std::array<int64_t, 8>;
Shape shape_of(const Product& p) {
  return {p.m,
          p.n,
          p.k,
          static_cast<int64_t>(p.of_c) * 256 + static_cast<int64_t>(p.of_a) * 16 + static_cast<int64_t>(p.of_b),
          p.transpose_a,
          p.transpose_b,
          static_cast<int64_t>(epilogue_of(p)) * 2 + (p.accumulate ? 1 : 0),
          alignment_of(p)};
}

struct Library {
  Handle handle;
  std::mutex mutex;
  std::map<Shape, Recipe> recipes;
  Library() {
    cublasLtHandle_t made = nullptr;
    ok(lt().create(&made));
    handle.reset(made);
  }
};
// Never destroyed: at exit the GPU's context may be gone before.
Library& library() {
  static Library& one = *std::make_unique<Library>().release();
  return one;
}

std::string hex(const Algorithm& algorithm) {
  std::string digits;
  for (const unsigned char byte : std::bit_cast<std::array<unsigned char, sizeof algorithm>>(algorithm))
    digits += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return digits;
}

std::optional<Algorithm> algorithm_of(const std::string& digits) {
  std::array<unsigned char, sizeof(Algorithm)> bytes{};
  if (digits.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto [end, error] = std::from_chars(&digits[2 * i], &digits[2 * i] + 2, bytes[i], 16);
    if (error != std::errc() || end != &digits[2 * i] + 2) return std::nullopt;
  }
  return std::bit_cast<Algorithm>(bytes);
}

}  // namespace

bool multiply(const Cuda& cuda, const Product& p) {
  const std::lock_guard lock(library().mutex);
  const Shape shape = shape_of(p);
  auto at = library().recipes.find(shape);
  if (at == library().recipes.end()) {
    at = library().recipes.emplace(shape, describe(p)).first;
    const std::vector<Algorithm> advised = advice(library().handle.get(), at->second, p, 1);
    if (!advised.empty()) at->second.algorithm = advised.front();
  }
  const Recipe& r = at->second;
  if (!r.algorithm) return false;
  r.point_to(p);
  const float one = 1, before = p.accumulate ? 1 : 0;
  ok(lt().matmul(library().handle.get(), r.operation.get(), &one, p.b, r.a.get(), p.a, r.b.get(), &before, p.c, r.c.get(), p.c,
                 r.c.get(), &r.algorithm->opaque, scratch(cuda, kProductWorkspace), kProductWorkspace, stream_of(cuda)));
  return true;
}

std::vector<std::string> algorithms(const Product& p, int most) {
  std::vector<std::string> words;
  for (const Algorithm& algorithm : advice(library().handle.get(), describe(p), p, most)) words.push_back(hex(algorithm));
  return words;
}

bool prefer(const Product& p, const std::string& algorithm) {
  Recipe r = describe(p);
  if (algorithm == kApart) {
    if (!p.fused()) return false;
    const std::lock_guard lock(library().mutex);
    library().recipes.insert_or_assign(shape_of(p), std::move(r));
    return true;
  }
  r.algorithm = algorithm_of(algorithm);
  if (!r.algorithm) return false;
  cublasLtMatmulHeuristicResult_t found{};
  if (lt().matmul_algo_check(library().handle.get(), r.operation.get(), r.a.get(), r.b.get(), r.c.get(), r.c.get(),
                             &r.algorithm->opaque, &found) != CUBLAS_STATUS_SUCCESS)
    return false;
  if (found.state != CUBLAS_STATUS_SUCCESS || found.workspaceSize > static_cast<size_t>(kProductWorkspace)) return false;
  const std::lock_guard lock(library().mutex);
  library().recipes.insert_or_assign(shape_of(p), std::move(r));
  return true;
}

std::string product_library() { return "cuBLASLt " + std::to_string(lt().get_version()); }

}  // namespace trireme
