// Attention by cuDNN's fused kernels. cuDNN receives a graph of matrix products, pointwise
// functions and sums, recognises attention in it and returns a plan of one or a few kernels. Its
// order of dims is [B, H, T, D]; strides describe ours, [B, T, H, D]. A head of k and v that
// several query heads share is a broadcast.
#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/fused_attention.h"
#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

constexpr size_t kOldest = 91000;  // first version whose masks accept -infinity, and whose plans belong to a device, not a handle
constexpr int64_t kMostWorkspace = int64_t{2} << 30;  // bytes: a deterministic backward stores a [T, T] matrix for each head

// [B, T, heads, D] in memory.
Layout heads_of(const AttentionShape& s, int64_t heads) {
  const int64_t d = s.head_size;
  return {{s.rows, heads, s.tokens, d}, {s.tokens * heads * d, d, heads * d, 1}};
}

// Ids of a graph's inputs and outputs: a plan runs with a pointer for each. Scalars are passed by
// value, also by pointer.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kRowSums, kScale, kOne, kHidden, kWindow };

// Returns scores if a query sees the key, else -infinity.
Value masked(CudnnGraph& g, const AttentionShape& s, const Value& scores, const Value& hidden) {
  const auto hide = [&](const Value& x, cudnnPointwiseMode_t mode, const Value& a, const Value& b) {
    const Value sees = g.inner(CUDNN_DATA_BOOLEAN, scores.layout), y = g.inner(CUDNN_DATA_FLOAT, scores.layout);
    g.pointwise({mode, CUDNN_DATA_BOOLEAN}, sees, a, b);
    g.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, y, x, hidden, sees);
    return y;
  };
  const auto index = [&](const Value& x, int64_t axis) {
    const Value y = g.inner(CUDNN_DATA_INT32, scores.layout);
    g.pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis}, y, x);
    return y;
  };
  const Value query = index(scores, 2), key = index(scores, 3);
  const Value causal = hide(scores, CUDNN_POINTWISE_CMP_GE, query, key);
  if (s.window == 0) return causal;
  const Value row = index(causal, 2), column = index(causal, 3), end = g.inner(CUDNN_DATA_INT32, scores.layout);
  g.pointwise({CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32}, end, column, g.number(kWindow, CUDNN_DATA_INT32));
  return hide(causal, CUDNN_POINTWISE_CMP_GT, end, row);
}

const Descriptor& forward_graph(CudnnGraph& g, const AttentionShape& s) {
  const Layout rows = dense({s.rows, s.heads, s.tokens, 1}), square = dense({s.rows, s.heads, s.tokens, s.tokens});
  const Value q = g.outer(kQ, CUDNN_DATA_BFLOAT16, heads_of(s, s.heads));
  const Value kt = g.outer(kK, CUDNN_DATA_BFLOAT16, heads_of(s, s.kv_heads).transposed());
  const Value v = g.outer(kV, CUDNN_DATA_BFLOAT16, heads_of(s, s.kv_heads));
  const Value products = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(products, q, kt);
  const Value scores = g.f32(CUDNN_POINTWISE_MUL, products, g.number(kScale, CUDNN_DATA_FLOAT));
  const Value seen = masked(g, s, scores, g.number(kHidden, CUDNN_DATA_FLOAT));
  // softmax and its lse
  const Value top = g.inner(CUDNN_DATA_FLOAT, rows), total = g.inner(CUDNN_DATA_FLOAT, rows);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, top, seen);
  const Value e = g.f32(CUDNN_POINTWISE_EXP, g.f32(CUDNN_POINTWISE_SUB, seen, top));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, total, e);
  g.pointwise({CUDNN_POINTWISE_ADD}, g.outer(kLse, CUDNN_DATA_FLOAT, rows), top, g.f32(CUDNN_POINTWISE_LOG, total));
  const Value p = g.inner(CUDNN_DATA_BFLOAT16, square);
  g.pointwise({CUDNN_POINTWISE_DIV}, p, e, total);
  g.matmul(g.outer(kOut, CUDNN_DATA_BFLOAT16, heads_of(s, s.heads)), p, v);
  return g.finish();
}

// dx = a b; if several query heads share a head of k and v, dx is the sum over these.
void add_heads(CudnnGraph& g, const AttentionShape& s, Uid dx, const Value& a, const Value& b) {
  const Value to = g.outer(dx, CUDNN_DATA_BFLOAT16, heads_of(s, s.kv_heads));
  if (s.heads == s.kv_heads) return g.matmul(to, a, b);
  const Value each = g.inner(CUDNN_DATA_BFLOAT16, dense({s.rows, s.heads, s.tokens, s.head_size}));
  g.matmul(each, a, b);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, to, each);
}

// The product writes dq directly: for sums in f32 memory cuDNN would use atomic additions, whose
// order varies.
const Descriptor& backward_graph(CudnnGraph& g, const AttentionShape& s) {
  const Layout rows = dense({s.rows, s.heads, s.tokens, 1}), square = dense({s.rows, s.heads, s.tokens, s.tokens});
  const Layout queries = heads_of(s, s.heads), keys = heads_of(s, s.kv_heads);
  const Value q = g.outer(kQ, CUDNN_DATA_BFLOAT16, queries), out = g.outer(kOut, CUDNN_DATA_BFLOAT16, queries);
  const Value dout = g.outer(kDout, CUDNN_DATA_BFLOAT16, queries), lse = g.outer(kLse, CUDNN_DATA_FLOAT, rows);
  const Value kt = g.outer(kK, CUDNN_DATA_BFLOAT16, keys.transposed()), vt = g.outer(kV, CUDNN_DATA_BFLOAT16, keys.transposed());
  const Value scale = g.number(kScale, CUDNN_DATA_FLOAT);
  // the sums dout . out of rows
  const Value sums = g.inner(CUDNN_DATA_FLOAT, rows), row_sums = g.outer(kRowSums, CUDNN_DATA_FLOAT, rows);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, sums, g.f32(CUDNN_POINTWISE_MUL, dout, out));
  g.pointwise({CUDNN_POINTWISE_MUL}, row_sums, sums, g.number(kOne, CUDNN_DATA_FLOAT));
  // p = exp(scores - lse); dv = p' dout
  const Value products = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(products, q, kt);
  const Value below = g.f32(CUDNN_POINTWISE_SUB, g.f32(CUDNN_POINTWISE_MUL, products, scale), lse);
  const Value p = g.f32(CUDNN_POINTWISE_EXP, masked(g, s, below, g.number(kHidden, CUDNN_DATA_FLOAT)));
  add_heads(g, s, kDv, g.transpose(p, CUDNN_DATA_BFLOAT16), dout);
  // ds = p (dout v' - row_sums) scale; dk = ds' q; dq = ds k
  const Value dp = g.inner(CUDNN_DATA_FLOAT, square);
  g.matmul(dp, dout, vt);
  const Value ds = g.f32(CUDNN_POINTWISE_MUL, g.f32(CUDNN_POINTWISE_MUL, g.f32(CUDNN_POINTWISE_SUB, dp, row_sums), p), scale);
  add_heads(g, s, kDk, g.transpose(ds, CUDNN_DATA_BFLOAT16), q);
  g.matmul(g.outer(kDq, CUDNN_DATA_BFLOAT16, queries), ds, g.transpose(kt, CUDNN_DATA_BFLOAT16));
  return g.finish();
}

// Execution plan for attention of one shape.
struct Recipe {
  CudnnGraph graph;
  std::optional<Descriptor> plan;
  int64_t workspace = 0;
};

template <class T>
int64_t get(const Descriptor& from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values, size_t most) {
  int64_t count = 0;
  ok(dnn().get_attribute(from.get(), name, type, static_cast<int64_t>(most), &count, values));
  return count;
}

// False if the engine of a configuration is marked as nondeterministic. Not every nondeterministic
// engine is marked (cuDNN 9.19): the graph makes backward deterministic, and fused_agrees() checks
// it.
bool deterministic(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t into = engine.get();
  get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &into, 1);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes.data(), notes.size());
  return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes.begin() + count;
}

// Configurations that cuDNN recommends, best first.
std::vector<Descriptor> configurations(const Descriptor& graph, const Descriptor& gpu) {
  const Descriptor advice(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  advice.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  advice.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  advice.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu);
  advice.finish();
  const int64_t most = get<void>(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, nullptr, 0);
  std::vector<Descriptor> found;  // sized for the maximum
  std::vector<cudnnBackendDescriptor_t> into;
  for (int64_t i = 0; i < most; ++i) into.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  const int64_t count =
      most > 0 ? get(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, into.data(), into.size()) : 0;
  found.erase(found.begin() + count, found.end());
  return found;
}

// Throws Error if no plan exists.
Recipe make_recipe(const AttentionShape& s, const Descriptor& gpu) {
  Recipe r;
  const Descriptor& graph = s.backward ? backward_graph(r.graph, s) : forward_graph(r.graph, s);
  std::string why = "cuDNN has no kernel for this shape";
  for (const Descriptor& configuration : configurations(graph, gpu)) {
    if (!deterministic(configuration)) {
      why = "cuDNN's kernel is not deterministic";
      continue;
    }
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu);
    if (const cudnnStatus_t status = dnn().finalize(plan.get()); status != CUDNN_STATUS_SUCCESS) {
      why = std::string("cuDNN: ") + dnn().get_error_string(status);
      continue;
    }
    get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &r.workspace, 1);
    if (r.workspace <= kMostWorkspace) {
      r.plan.emplace(std::move(plan));
      return r;
    }
    why = text("cuDNN's deterministic kernel takes a workspace of ", r.workspace >> 20, " MiB");
  }
  throw Error(why);
}

// The library on this process's GPU.
struct Library {
  std::mutex mutex;
  Descriptor gpu{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
  cudnnHandle_t handle = nullptr;
  std::map<AttentionShape, Recipe> recipes;
  Library() {
    int device = 0;
    ok(cudaGetDevice(&device));
    gpu.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, static_cast<int32_t>(device));
    gpu.finish();
    ok(dnn().create(&handle));
  }
  const Recipe& recipe(const AttentionShape& shape) {
    const auto at = recipes.find(shape);
    return at != recipes.end() ? at->second : recipes.emplace(shape, make_recipe(shape, gpu)).first->second;
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};
// Never destroyed: at exit the GPU's context may be gone before.
Library& library() {
  static Library& made = *std::make_unique<Library>().release();
  return made;
}

// Checks our own limits; cuDNN's are found when a plan is made.
std::string unfit(const AttentionShape& s) {
  if (s.tokens % 128 != 0) return "cuDNN: the context is not a multiple of 128; using our kernels";
  if (s.head_size % 8 != 0) return "cuDNN: the head size is not a multiple of 8; using our kernels";
  int device = 0, major = 0;
  ok(cudaGetDevice(&device));
  ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (s.backward && major >= 10) return "cuDNN: deterministic backward is unverified on this GPU; using our kernels";
  return "";
}

// Arguments with which a plan runs.
struct Binding {
  Uid uid;
  const void* data;
};

void execute(const Cuda& cuda, const AttentionShape& shape, float scale, std::vector<Binding> bindings) {
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  const Recipe& r = l.recipe(shape);
  const float one = 1, hidden = -std::numeric_limits<float>::infinity();
  const auto window = static_cast<int32_t>(shape.window);
  const int64_t rows = shape.backward ? (shape.rows * shape.heads * shape.tokens * 4 + 255) / 256 * 256 : 0;  // bytes
  std::byte* const memory = static_cast<std::byte*>(scratch(cuda, rows + r.workspace));
  bindings.insert(bindings.end(), {{kScale, &scale}, {kHidden, &hidden}});
  if (shape.window > 0) bindings.push_back({kWindow, &window});
  if (shape.backward) bindings.insert(bindings.end(), {{kOne, &one}, {kRowSums, memory}});
  std::vector<int64_t> uids;
  std::vector<const void*> pointers;
  for (const Binding& b : bindings) uids.push_back(b.uid), pointers.push_back(b.data);
  const Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids.data(), uids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), pointers.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, memory + rows);
  pack.finish();
  ok(dnn().set_stream(l.handle, stream_of(cuda)));
  ok(dnn().execute(l.handle, r.plan->get(), pack.get()));
}

}  // namespace

FusedFacts fused_attention_facts() {
  size_t version = 0;
  try {
    version = dnn().get_version();
  } catch (const Error&) {  // its message names a file of ours
    return {.verdict = "cuDNN not found (" + Cudnn::name() + ")"};
  }
  const auto part = [&](size_t unit) { return std::to_string(version / unit % 100); };
  const std::string name = "cuDNN " + part(10000) + "." + part(100) + "." + part(1);
  if (version < kOldest) return {.verdict = name + " is too old; its fused attention needs 9.10 or later"};
  return {.found = true, .verdict = name};
}

std::string fused_refusal(const AttentionShape& shape) {
  if (const FusedFacts facts = fused_attention_facts(); !facts.found) return facts.verdict;
  if (const std::string why = unfit(shape); !why.empty()) return why;
  try {
    Library& l = library();
    const std::lock_guard lock(l.mutex);
    l.recipe(shape);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionForward& op) {
  execute(cuda, shape, op.scale,
          {{kQ, op.q.data()}, {kK, op.k.data()}, {kV, op.v.data()}, {kOut, op.out.data()}, {kLse, op.lse.data()}});
}

void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionBackward& op) {
  execute(cuda, shape, op.scale,
          {{kQ, op.q.data()},
           {kK, op.k.data()},
           {kV, op.v.data()},
           {kOut, op.out.data()},
           {kLse, op.lse.data()},
           {kDout, op.dout.data()},
           {kDq, op.dq.data()},
           {kDk, op.dk.data()},
           {kDv, op.dv.data()}});
}

}  // namespace trireme
