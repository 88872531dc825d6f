// A stand-in for libcublasLt that refuses what its documentation refuses, in words, and computes
// the rest in double. It has the functions that kernels/cuda/cublas.cpp opens.
//
// Source of its rules: the cuBLAS documentation, "Using the cuBLASLt API", cublasLtMatmul().
#include <cublasLt.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "test/emulation/numbers.h"
#include "test/emulation/standins/enqueue.h"

namespace {

namespace emulation = trireme::emulation;
using emulation::gelu;
using emulation::gelu_slope;
using trireme::Dtype;

thread_local std::string last_problem;

cublasStatus_t refuse(cublasStatus_t status, std::string why) {
  last_problem = std::move(why);
  return status;
}
cublasStatus_t invalid(std::string why) { return refuse(CUBLAS_STATUS_INVALID_VALUE, std::move(why)); }
cublasStatus_t unsupported(std::string why) { return refuse(CUBLAS_STATUS_NOT_SUPPORTED, std::move(why)); }

struct Layout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Preference {
  size_t workspace = 0;
  std::array<uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D; the default of the library
};
struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0;
  const float *a_scale = nullptr, *b_scale = nullptr;
  int8_t fast = 0;
  std::optional<cudaDataType_t> bias_type{};
};

// Handles that exist. The library crashes on others.
using Handles = std::map<const void*, std::variant<int, Layout, Preference, Operation>>;
Handles& known() {
  static Handles handles;
  return handles;
}
template <class T>
T* of(const void* handle) {
  const auto at = known().find(handle);
  return at == known().end() ? nullptr : std::get_if<T>(&at->second);
}
uintptr_t last = 0;
template <class T, class Handle>
cublasStatus_t make(Handle* handle, const T& value) {
  *handle = std::bit_cast<Handle>(last += 64);
  known().emplace(*handle, value);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(const void* handle) {
  if (of<T>(handle) == nullptr) return invalid("a handle that does not exist");
  known().erase(handle);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_8_bits(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
int64_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1; }
bool has_bias(cublasLtEpilogue_t e) { return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS; }
bool has_aux(cublasLtEpilogue_t e) { return (e & 128) != 0; }

struct Problem {
  const Operation& op;
  const Layout &a, &b, &c, &d;
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.cols; }
  uint64_t k() const { return op.transa == CUBLAS_OP_N ? a.cols : a.rows; }
  uint64_t digest() const {
    uint64_t sum = 14695981039346656037u;
    for (const uint64_t x : {m(), n(), k(), static_cast<uint64_t>(a.type), static_cast<uint64_t>(b.type),
                             static_cast<uint64_t>(d.type), static_cast<uint64_t>(op.transa), static_cast<uint64_t>(op.transb),
                             static_cast<uint64_t>(op.epilogue), static_cast<uint64_t>(a.ld), static_cast<uint64_t>(b.ld)})
      sum = (sum ^ x) * 1099511628211u;
    return sum;
  }
};

std::string sizes(const Layout& l) {
  return std::to_string(l.rows) + " x " + std::to_string(l.cols) + ", leading dimension " + std::to_string(l.ld);
}

cublasStatus_t check_shapes(const Problem& p) {
  for (const auto& [l, name] : {std::pair(&p.a, "A"), std::pair(&p.b, "B"), std::pair(&p.c, "C"), std::pair(&p.d, "D")})
    if (l->ld < static_cast<int64_t>(l->rows)) return invalid(std::string(name) + ": " + sizes(*l) + ", less than its rows");
  const bool ta = p.op.transa != CUBLAS_OP_N, tb = p.op.transb != CUBLAS_OP_N;
  if ((ta ? p.a.cols : p.a.rows) != p.m()) return invalid("A: " + sizes(p.a) + "; D has " + std::to_string(p.m()) + " rows");
  if ((tb ? p.b.rows : p.b.cols) != p.n()) return invalid("B: " + sizes(p.b) + "; D has " + std::to_string(p.n()) + " columns");
  if ((tb ? p.b.cols : p.b.rows) != p.k()) return invalid("A: " + sizes(p.a) + "; B: " + sizes(p.b) + ": sums of other lengths");
  if (p.c.rows != p.d.rows || p.c.cols != p.d.cols) return invalid("C: " + sizes(p.c) + "; D: " + sizes(p.d));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_types(const Problem& p) {
  if (p.op.compute != CUBLAS_COMPUTE_32F || p.op.scale != CUDA_R_32F) return unsupported("sums that are not f32");
  if (p.c.type != p.d.type) return unsupported("C and D of two types");
  const bool narrow = is_8_bits(p.a.type) || is_8_bits(p.b.type);
  if (!narrow) {
    if (p.a.type != p.b.type) return unsupported("A and B of two types");
    if (p.a.type == CUDA_R_32F && p.d.type != CUDA_R_32F) return unsupported("f32 operands into another type");
    if (p.op.a_scale != nullptr || p.op.b_scale != nullptr) return unsupported("scales of operands that are not 8-bit");
    return CUBLAS_STATUS_SUCCESS;
  }
  if (!is_8_bits(p.a.type) || !is_8_bits(p.b.type)) return unsupported("one 8-bit operand alone");
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return unsupported("both operands are e5m2");
  if (p.op.transa != CUBLAS_OP_T || p.op.transb != CUBLAS_OP_N) return unsupported("8-bit operands: A must be transposed, B not");
  for (const uint64_t dim : {p.m(), p.n(), p.k(), static_cast<uint64_t>(p.a.ld), static_cast<uint64_t>(p.b.ld)})
    if (dim % 16 != 0) return unsupported("8-bit operands: " + std::to_string(dim) + " is not a multiple of 16");
  if (p.op.a_scale == nullptr || p.op.b_scale == nullptr) return invalid("8-bit operands without their scales");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Problem& p) {
  const auto e = p.op.epilogue;
  const std::set<int> offered{CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,  CUBLASLT_EPILOGUE_GELU_AUX,
                              CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};
  if (!offered.contains(e)) return unsupported("epilogue " + std::to_string(e));
  const bool narrow = is_8_bits(p.a.type);
  if (narrow && e != CUBLASLT_EPILOGUE_DEFAULT && e != CUBLASLT_EPILOGUE_BIAS)
    return unsupported("8-bit operands with epilogue " + std::to_string(e));
  if (has_bias(e) || e == CUBLASLT_EPILOGUE_BGRADB) {
    if (p.op.bias == nullptr) return invalid("the epilogue needs an address of its bias");
    const cudaDataType_t wanted = narrow && has_bias(e) ? CUDA_R_16BF : p.d.type;
    if (p.op.bias_type.value_or(p.d.type) != wanted) return unsupported("a bias of another type than this product's");
    if (std::bit_cast<uintptr_t>(p.op.bias) % 16 != 0) return unsupported("a bias that does not begin at a multiple of 16 bytes");
  }
  if (has_aux(e)) {
    if (p.op.aux == nullptr) return invalid("the epilogue needs an address of its auxiliary matrix");
    if (p.op.aux_ld < static_cast<int64_t>(p.m())) return invalid("the auxiliary matrix's leading dimension is less than its rows");
    if (p.op.aux_ld % 8 != 0) return unsupported("the auxiliary matrix's leading dimension is not a multiple of 8");
    if (std::bit_cast<uintptr_t>(p.op.aux) % 16 != 0)
      return unsupported("an auxiliary matrix that does not begin at a multiple of 16 bytes");
  }
  return CUBLAS_STATUS_SUCCESS;
}

// `alignment`: bytes of which each address is a multiple.
cublasStatus_t check(const Problem& p, const std::array<uint32_t, 4>& alignment) {
  for (const auto& rule : {check_shapes, check_types, check_epilogue})
    if (const cublasStatus_t status = rule(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const std::array<const Layout*, 4> all{&p.a, &p.b, &p.c, &p.d};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto needed = static_cast<uint32_t>(is_8_bits(p.a.type) ? 16 : bytes_of(all[i]->type));
    if (alignment[i] % needed != 0)
      return unsupported(std::string(1, "ABCD"[i]) + " at a multiple of " + std::to_string(alignment[i]) + " bytes; " +
                         std::to_string(needed) + " are needed");
  }
  return CUBLAS_STATUS_SUCCESS;
}

// An algorithm is for one problem, and for addresses that are multiples of what was promised.
constexpr uint64_t kMagic = 0x7472697265;
constexpr size_t kWorkspace = 1 << 20;  // bytes that the second one needs
struct Algorithm {
  uint64_t magic, digest, variant;
  std::array<uint32_t, 4> alignment;
  std::array<uint64_t, 3> rest{};
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kVariants = 3;
size_t workspace_of(const Algorithm& algorithm) { return algorithm.variant == 1 ? kWorkspace : 0; }

Dtype dtype_of(cudaDataType_t type) {
  return type == CUDA_R_16BF      ? Dtype::bf16
         : type == CUDA_R_8F_E4M3 ? Dtype::e4m3
         : type == CUDA_R_8F_E5M2 ? Dtype::e5m2
                                  : Dtype::f32;
}
double read(const void* x, cudaDataType_t type, int64_t i) { return emulation::read(x, dtype_of(type), i); }
void write(void* x, cudaDataType_t type, int64_t i, double value) { emulation::write(x, dtype_of(type), i, value); }

struct Work {
  Operation op;
  Layout a, b, d;
  const void *at_a, *at_b, *at_c;
  void* at_d;
  uint64_t k, variant;
  double alpha, beta;

  void run() const {
    for (int64_t j = 0; j < static_cast<int64_t>(d.cols); ++j) {
      for (int64_t i = 0; i < static_cast<int64_t>(d.rows); ++i) element(i, j);
      if (op.epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
      double sum = 0;
      for (int64_t l = 0; l < static_cast<int64_t>(k); ++l) sum += of_b(l, j);
      write(op.bias, op.bias_type.value_or(d.type), j, sum);
    }
  }

 private:
  double of_a(int64_t i, int64_t l) const { return read(at_a, a.type, op.transa == CUBLAS_OP_N ? l * a.ld + i : i * a.ld + l); }
  double of_b(int64_t l, int64_t j) const { return read(at_b, b.type, op.transb == CUBLAS_OP_N ? j * b.ld + l : l * b.ld + j); }
  void element(int64_t i, int64_t j) const {
    double x = 0;
    for (int64_t l = 0; l < static_cast<int64_t>(k); ++l) x += of_a(i, l) * of_b(l, j);
    if (op.a_scale != nullptr) x *= double{*op.a_scale} * double{*op.b_scale};
    if (variant == 2 && std::getenv("STANDIN_WRONG") != nullptr) x *= 1.25;
    x = alpha * x + (beta != 0 ? beta * read(at_c, d.type, j * d.ld + i) : 0);
    if (has_bias(op.epilogue)) x += read(op.bias, op.bias_type.value_or(d.type), i);
    const int64_t aux = j * op.aux_ld + i;
    if (op.epilogue == CUBLASLT_EPILOGUE_DGELU) x *= gelu_slope(read(op.aux, d.type, aux));
    if (op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
      write(op.aux, d.type, aux, x), x = gelu(x);
    write(at_d, d.type, j * d.ld + i, x);
  }
};

void enqueue(cudaStream_t stream, const Work& work) {
  trireme_enqueue(stream, std::make_unique<Work>(work).release(),
                  [](void* state) { std::unique_ptr<Work>(static_cast<Work*>(state))->run(); });
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return make(handle, 0); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }
size_t cublasLtGetVersion() { return 1; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static thread_local std::string words;
  words = (status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported: " : "invalid value: ") + last_problem;
  return words.c_str();
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  return make(layout, Layout{type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy<Layout>(layout); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return make(desc, Operation{.compute = compute, .scale = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy<Operation>(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
  Operation* const op = of<Operation>(desc);
  if (op == nullptr) return invalid("a descriptor that does not exist");
  const auto set = [&](auto& to) {
    if (bytes != sizeof to)
      return invalid("attribute " + std::to_string(attribute) + " has " + std::to_string(sizeof to) + " bytes, not " +
                     std::to_string(bytes));
    std::memcpy(&to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(op->transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(op->transb);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(op->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(op->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(op->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(op->aux_ld);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(op->a_scale);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(op->b_scale);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set(op->fast);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: {
      cudaDataType_t type{};
      const cublasStatus_t status = set(type);
      if (status == CUBLAS_STATUS_SUCCESS) op->bias_type = type;
      return status;
    }
    default:
      return invalid("attribute " + std::to_string(attribute) + " is unknown to this stand-in");
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) { return make(preference, Preference{}); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroy<Preference>(preference); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  Preference* const preference = of<Preference>(handle);
  if (preference == nullptr) return invalid("a preference that does not exist");
  const bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  const int64_t which = int64_t{attribute} - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (!workspace && (which < 0 || which > 3))
    return invalid("preference " + std::to_string(attribute) + " is unknown to this stand-in");
  if (bytes != (workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
    return invalid("preference " + std::to_string(attribute) + " of " + std::to_string(bytes) + " bytes");
  std::memcpy(workspace ? static_cast<void*>(&preference->workspace) : &preference->alignment[static_cast<size_t>(which)], from,
              bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  const Preference* const wanted = of<Preference>(preference);
  for (const void* each : std::initializer_list<const void*>{handle, desc, a, b, c, d, preference})
    if (!known().contains(each)) return invalid("a handle that does not exist");
  const Problem p{*of<Operation>(desc), *of<Layout>(a), *of<Layout>(b), *of<Layout>(c), *of<Layout>(d)};
  *count = 0;
  if (const cublasStatus_t status = check(p, wanted->alignment); status != CUBLAS_STATUS_SUCCESS) return status;
  for (uint64_t variant = 0; variant < kVariants && *count < most; ++variant) {
    const Algorithm algorithm{.magic = kMagic, .digest = p.digest(), .variant = variant, .alignment = wanted->alignment};
    if (workspace_of(algorithm) > wanted->workspace) continue;
    cublasLtMatmulHeuristicResult_t& result = found[(*count)++];
    result = {};
    result.algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    result.workspaceSize = workspace_of(algorithm);
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  for (const void* each : std::initializer_list<const void*>{handle, desc, a, b, c, d})
    if (!known().contains(each)) return invalid("a handle that does not exist");
  const Problem p{*of<Operation>(desc), *of<Layout>(a), *of<Layout>(b), *of<Layout>(c), *of<Layout>(d)};
  const auto algorithm = std::bit_cast<Algorithm>(*algo);
  if (algorithm.magic != kMagic) return invalid("an algorithm that is not of this library");
  if (algorithm.digest != p.digest()) return invalid("an algorithm of another problem");
  if (const cublasStatus_t status = check(p, algorithm.alignment); status != CUBLAS_STATUS_SUCCESS) return status;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = workspace_of(algorithm);
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* at_a,
                              cublasLtMatrixLayout_t a, const void* at_b, cublasLtMatrixLayout_t b, const void* beta,
                              const void* at_c, cublasLtMatrixLayout_t c, void* at_d, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t bytes, cudaStream_t stream) {
  if (algo == nullptr) return invalid("no algorithm");
  cublasLtMatmulHeuristicResult_t checked{};
  if (const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, algo, &checked);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  const auto algorithm = std::bit_cast<Algorithm>(*algo);
  const std::array<const void*, 4> addresses{at_a, at_b, at_c, at_d};
  for (size_t i = 0; i < addresses.size(); ++i)
    if (std::bit_cast<uintptr_t>(addresses[i]) % algorithm.alignment[i] != 0)
      return invalid(std::string(1, "ABCD"[i]) + " is not at a multiple of " + std::to_string(algorithm.alignment[i]) +
                     " bytes, as was promised");
  if (workspace_of(algorithm) > bytes) return invalid("a workspace of " + std::to_string(bytes) + " bytes is too small");
  if (std::bit_cast<uintptr_t>(workspace) % 256 != 0) return invalid("the workspace is not at a multiple of 256 bytes");
  if (at_c != at_d && at_c != nullptr && *static_cast<const float*>(beta) != 0 && of<Layout>(c)->ld != of<Layout>(d)->ld)
    return invalid("C and D with other leading dimensions");
  // The documentation does not say so: version 13.1 on an H100 gave wrong gradients.
  if (of<Operation>(desc)->epilogue == CUBLASLT_EPILOGUE_DGELU && of<Operation>(desc)->aux == at_d)
    return invalid("an auxiliary matrix that D replaces");
  const Problem p{*of<Operation>(desc), *of<Layout>(a), *of<Layout>(b), *of<Layout>(c), *of<Layout>(d)};
  enqueue(stream, {.op = p.op,
                   .a = p.a,
                   .b = p.b,
                   .d = p.d,
                   .at_a = at_a,
                   .at_b = at_b,
                   .at_c = at_c,
                   .at_d = at_d,
                   .k = p.k(),
                   .variant = algorithm.variant,
                   .alpha = *static_cast<const float*>(alpha),
                   .beta = *static_cast<const float*>(beta)});
  return CUBLAS_STATUS_SUCCESS;
}
}
