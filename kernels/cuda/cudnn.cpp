// Attention by cuDNN's fused kernels. cuDNN receives a graph of matrix products, pointwise
// functions and sums, recognises attention in it and returns a plan of one or a few kernels.
#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/fused_attention.h"
#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

constexpr size_t kOldest = 91000;  // first version whose masks accept -infinity, and whose plans belong to a device, not a handle

// Execution plan for attention of one shape, group by group.
struct Recipe {
  CudnnGraph graph;
  std::optional<Descriptor> plan;
  int64_t workspace = 0;
  int64_t groups = 1;
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

// Sets r.plan for one group and returns "", or why there is none; r.workspace is then what the last kernel would take.
std::string plan_group(Recipe& r, const HeadGroup& group, const Descriptor& gpu, int64_t most) {
  const Descriptor& graph = group.whole.backward ? backward_graph(r.graph, group) : forward_graph(r.graph, group);
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
    if (r.workspace <= most) {
      r.plan.emplace(std::move(plan));
      return "";
    }
    why = text("cuDNN's deterministic kernel takes a workspace of ", r.workspace >> 20, " MiB");
  }
  return why;
}

// Takes the largest groups whose workspace fits, or one key-value head's if it is not much larger. Throws Error if no plan exists.
Recipe make_recipe(const AttentionShape& s, const Descriptor& gpu) {
  const FusedWorkspace limits;
  std::string why;
  for (int64_t groups = 1; groups <= s.kv_heads;) {
    Recipe r;
    r.groups = groups;
    why = plan_group(r, {.whole = s, .kv_heads = s.kv_heads / groups}, gpu, groups < s.kv_heads ? limits.usual : limits.most);
    if (r.plan) return r;
    if (r.workspace <= limits.usual || groups == s.kv_heads) break;
    groups = std::min(s.kv_heads, (r.workspace * groups + limits.usual - 1) / limits.usual);
    while (s.kv_heads % groups != 0) ++groups;
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
    gpu.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, static_cast<int32_t>(current_gpu()));
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
  if (s.backward && gpu_generation() >= 10) return "cuDNN: deterministic backward is unverified on this GPU; using our kernels";
  return "";
}

// Arguments with which a plan runs. Each group of heads begins so many bytes after the one before.
struct Binding {
  AttentionUid uid;
  const void* data;
  int64_t bytes_of_group = 0;
};

void execute_group(const Library& l, const Recipe& r, const std::vector<Binding>& bindings, int64_t group, void* workspace) {
  std::vector<int64_t> uids;
  std::vector<const void*> pointers;
  for (const Binding& b : bindings)
    uids.push_back(b.uid), pointers.push_back(static_cast<const std::byte*>(b.data) + group * b.bytes_of_group);
  const Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids.data(), uids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), pointers.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finish();
  ok(dnn().execute(l.handle, r.plan->get(), pack.get()));
}

void execute(const Cuda& cuda, const AttentionShape& shape, float scale, const Tensor& start, std::vector<Binding> bindings) {
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  const Recipe& r = l.recipe(shape);
  const float one = 1, hidden = -std::numeric_limits<float>::infinity();
  const auto window = static_cast<int32_t>(shape.window);
  const HeadGroup group{.whole = shape, .kv_heads = shape.kv_heads / r.groups};
  const int64_t rows = shape.backward ? (shape.rows * group.heads() * shape.tokens * 4 + 255) / 256 * 256 : 0;  // bytes
  std::byte* const memory = static_cast<std::byte*>(scratch(cuda, rows + r.workspace));
  for (Binding& b : bindings) {
    const bool of_keys = b.uid == kK || b.uid == kV || b.uid == kDk || b.uid == kDv;
    b.bytes_of_group = b.uid == kLse ? group.heads() * shape.tokens * 4
                                     : (of_keys ? group.kv_heads : group.heads()) * shape.head_size * bytes_of(Dtype::bf16);
  }
  bindings.insert(bindings.end(), {{kScale, &scale}, {kHidden, &hidden}});
  if (shape.window > 0) bindings.push_back({kWindow, &window});
  if (shape.documents) bindings.push_back({kStart, start.data()});
  if (shape.backward) bindings.insert(bindings.end(), {{kOne, &one}, {kRowSums, memory}});
  ok(dnn().set_stream(l.handle, stream_of(cuda)));
  for (int64_t i = 0; i < r.groups; ++i) execute_group(l, r, bindings, i, memory + rows);
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
  execute(cuda, shape, op.scale, op.document_start,
          {{kQ, op.q.data()}, {kK, op.k.data()}, {kV, op.v.data()}, {kOut, op.out.data()}, {kLse, op.lse.data()}});
}

void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionBackward& op) {
  execute(cuda, shape, op.scale, op.document_start,
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
