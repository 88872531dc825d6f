// Products by cuBLASLt. It thinks in columns: c = a b in rows is c' = b' a' in columns of the same memory.
#include <cublasLt.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/products.cuh"
#include "kernels/library.h"

namespace trireme {
namespace {

constexpr int64_t kWorkspace = 32 << 20;  // bytes: what NVIDIA advises for Hopper

struct CublasLt {
  SharedLibrary library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), "matrix products on a GPU"};
  decltype(&cublasLtCreate) create = library.find<decltype(cublasLtCreate)>("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = library.find<decltype(cublasLtDestroy)>("cublasLtDestroy");
  decltype(&cublasLtGetStatusString) get_status_string = library.find<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
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

cudaDataType_t type_of(Dtype dtype) { return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

Layout layout(Dtype dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  ok(lt().matrix_layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows));
  return Layout(made);
}

// How products of one shape are done.
struct Recipe {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

// 16, where nothing better is known of all pointers, up to 256.
uint32_t alignment_of(const Product& p) {
  const auto bits = reinterpret_cast<uintptr_t>(p.a) | reinterpret_cast<uintptr_t>(p.b) | reinterpret_cast<uintptr_t>(p.c) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

Recipe make_recipe(cublasLtHandle_t handle, const Product& p) {
  Recipe r;
  cublasLtMatmulDesc_t operation = nullptr;
  ok(lt().matmul_desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  r.operation.reset(operation);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    ok(lt().matmul_desc_set_attribute(operation, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.of_inputs));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  r.a = p.transpose_b ? layout(p.of_inputs, p.k, p.n) : layout(p.of_inputs, p.n, p.k);
  r.b = p.transpose_a ? layout(p.of_inputs, p.m, p.k) : layout(p.of_inputs, p.k, p.m);
  r.c = layout(p.of_c, p.n, p.m);

  cublasLtMatmulPreference_t made = nullptr;
  ok(lt().matmul_preference_create(&made));
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    ok(lt().matmul_preference_set_attribute(made, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspace));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, alignment_of(p));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  ok(lt().matmul_algo_get_heuristic(handle, operation, r.a.get(), r.b.get(), r.c.get(), r.c.get(), made, 1, &found, &count));
  require(count > 0, text("cuBLASLt knows no way to multiply ", p.m, " x ", p.k, " by ", p.k, " x ", p.n));
  r.algorithm = found.algo;
  return r;
}

struct Library {
  Handle handle;
  std::mutex mutex;
  std::map<std::array<int64_t, 8>, Recipe> recipes;
  Library() {
    cublasLtHandle_t made = nullptr;
    ok(lt().create(&made));
    handle.reset(made);
  }
};

}  // namespace

void multiply(const Cuda& cuda, const Product& p) {
  static Library library;
  const std::array<int64_t, 8> shape{p.m,
                                     p.n,
                                     p.k,
                                     static_cast<int64_t>(p.of_c) * 16 + static_cast<int64_t>(p.of_inputs),
                                     p.transpose_a,
                                     p.transpose_b,
                                     p.bias != nullptr,
                                     alignment_of(p)};
  const std::lock_guard lock(library.mutex);
  auto at = library.recipes.find(shape);
  if (at == library.recipes.end()) at = library.recipes.emplace(shape, make_recipe(library.handle.get(), p)).first;
  const Recipe& r = at->second;
  if (p.bias != nullptr)
    ok(lt().matmul_desc_set_attribute(r.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias));
  const float one = 1, before = p.accumulate ? 1 : 0;
  ok(lt().matmul(library.handle.get(), r.operation.get(), &one, p.b, r.a.get(), p.a, r.b.get(), &before, p.c, r.c.get(), p.c,
                 r.c.get(), &r.algorithm, scratch(cuda, kWorkspace), kWorkspace, stream_of(cuda)));
}

}  // namespace trireme
