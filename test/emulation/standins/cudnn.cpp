// A stand-in for libcudnn with the functions that kernels/cuda/cudnn_graph.h opens. It refuses what
// the library refuses, in words, and computes the rest in double: see cudnn_graph.h.
//
// Of a backward it offers three engines: one that is not deterministic, one that it cannot make a
// plan of, and one that works.
#include <cudnn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <variant>

#include "test/emulation/standins/cudnn_graph.h"
#include "test/emulation/standins/enqueue.h"

namespace {

using standin::Operation;
using standin::Tensor;

thread_local std::string last_problem;

cudnnStatus_t refuse(cudnnStatus_t status, std::string why) {
  last_problem = std::move(why);
  return status;
}
cudnnStatus_t bad(std::string why) { return refuse(CUDNN_STATUS_BAD_PARAM, std::move(why)); }

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<int, Attribute> attributes{};

  template <class T>
  std::vector<T> all(int name) const {
    const auto at = attributes.find(name);
    if (at == attributes.end()) return {};
    std::vector<T> values(at->second.bytes.size() / sizeof(T));
    std::memcpy(values.data(), at->second.bytes.data(), at->second.bytes.size());
    return values;
  }
  template <class T>
  T one(int name, T otherwise = {}) const {
    const auto at = attributes.find(name);
    if (at != attributes.end() && at->second.count > 0) std::memcpy(&otherwise, at->second.bytes.data(), sizeof otherwise);
    return otherwise;
  }
};

std::set<const void*>& known() {
  static std::set<const void*> descriptors;
  return descriptors;
}
Descriptor* of(const void* handle) { return known().contains(handle) ? std::bit_cast<Descriptor*>(handle) : nullptr; }

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

// Attributes of each kind of descriptor that the stand-in knows, with their types; the first
// `needed` of them must be set.
struct Rule {
  std::vector<std::pair<int, cudnnBackendAttributeType_t>> attributes;
  size_t needed;
};
const std::map<int, Rule>& rules() {
  static const auto descriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static const std::map<int, Rule> all{
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
         {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN},
         {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN}},
        5}},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR, {{{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}}, 1}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
         {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
         {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64}},
        2}},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
       {{{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
         {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}},
        2}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_MATMUL_DESC, descriptor},
         {CUDNN_ATTR_OPERATION_MATMUL_ADESC, descriptor},
         {CUDNN_ATTR_OPERATION_MATMUL_BDESC, descriptor},
         {CUDNN_ATTR_OPERATION_MATMUL_CDESC, descriptor}},
        4}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor},
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor},
         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, descriptor},
         {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor},
         {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, descriptor}},
        3}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_REDUCTION_DESC, descriptor},
         {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, descriptor},
         {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, descriptor}},
        3}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, descriptor}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, descriptor}}, 2}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, {{{CUDNN_ATTR_OPERATIONGRAPH_OPS, descriptor}}, 1}},
      {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, {{{CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32}}, 1}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, descriptor},
         {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
         {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, descriptor}},
        3}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {{{CUDNN_ATTR_ENGINECFG_ENGINE, descriptor}}, 1}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {{{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, descriptor}}, 1}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, descriptor}, {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, descriptor}}, 2}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
         {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}},
        2}}};
  return all;
}

// Engines, by what is kept in a configuration: the graph and the engine's number.
constexpr int kGraph = 1 << 20, kNumber = kGraph + 1;
enum Engine : int64_t { kVarying, kUnmade, kWorks };

Tensor tensor_of(const void* handle) {
  const Descriptor* d = of(handle);
  if (d == nullptr) return {};
  return {.uid = d->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          .type = d->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
          .dims = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          .strides = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          .alignment = d->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
          .inner = d->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
          .by_value = d->one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
}

Operation operation_of(const Descriptor& d) {
  const auto tensor = [&](int name) { return tensor_of(d.one<const void*>(name)); };
  const auto how = [&](int name) { return of(d.one<const void*>(name)); };
  using enum Operation::Kind;
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {.kind = matmul,
              .a = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
              .b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
              .t = {},
              .y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC),
              .has_b = true};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Descriptor* mode = how(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      return {.kind = pointwise,
              .mode = mode->one<int>(CUDNN_ATTR_POINTWISE_MODE),
              .axis = mode->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1),
              .a = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
              .b = tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              .t = tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
              .y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
              .has_b = d.attributes.contains(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              .has_t = d.attributes.contains(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)};
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {.kind = reduction,
              .mode = how(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR),
              .a = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
              .b = {},
              .t = {},
              .y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    default:
      return {.kind = reshape,
              .a = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
              .b = {},
              .t = {},
              .y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
  }
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

std::vector<Operation> graph_of(const Descriptor& graph) {
  std::vector<Operation> operations;
  for (const void* handle : graph.all<const void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) operations.push_back(operation_of(*of(handle)));
  return operations;
}

template <class T>
void keep(Descriptor& d, int name, cudnnBackendAttributeType_t type, T value) {
  Attribute attribute{type, 1, std::vector<std::byte>(sizeof value)};
  std::memcpy(attribute.bytes.data(), &value, sizeof value);
  d.attributes[name] = attribute;
}

std::string attributes_problem(const Descriptor& d) {
  const Rule& rule = rules().at(d.type);
  for (size_t i = 0; i < rule.needed; ++i)
    if (!d.attributes.contains(rule.attributes[i].first))
      return "attribute " + std::to_string(rule.attributes[i].first) + " of descriptor type " + std::to_string(d.type) +
             " is missing";
  for (const auto& [name, attribute] : d.attributes)
    if (attribute.type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
      for (const void* part : d.all<const void*>(name))
        if (of(part) == nullptr || !of(part)->finished)
          return "a part of descriptor type " + std::to_string(d.type) + " is not finalized";
  return "";
}

cudnnStatus_t finalize(Descriptor& d) {
  if (d.finished) return bad("a descriptor is finalized twice");
  std::string why = attributes_problem(d);
  if (!why.empty()) return bad(why);
  if (d.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) why = standin::problem(tensor_of(&d));
  if (is_operation(d.type)) why = standin::problem(operation_of(d));
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) why = standin::problem(graph_of(d));
  if (!why.empty()) return bad(why);
  if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Descriptor* engine = of(d.one<const void*>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
    if (engine->one<int64_t>(kNumber) == kUnmade) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this engine has no plan");
    keep(d, kGraph, CUDNN_TYPE_VOID_PTR, engine->one<const Descriptor*>(kGraph));  // a plan outlives its configuration
  }
  if (d.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
      d.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count != d.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count)
    return bad("ids and pointers of a variant pack differ in number");
  d.finished = true;
  return CUDNN_STATUS_SUCCESS;
}

// Engines for a graph, written into the caller's configurations.
cudnnStatus_t recommend(const Descriptor& advice, int64_t most, int64_t* count, void* into) {
  const auto* graph = of(advice.one<const void*>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  std::vector<int64_t> engines{kUnmade, kWorks};
  if (standin::is_backward(graph_of(*graph))) engines.insert(engines.begin(), kVarying);
  *count = most == 0 ? 10 : std::min(most, std::ssize(engines));
  for (int64_t i = 0; i < *count && most > 0; ++i) {
    Descriptor* made = of(static_cast<void**>(into)[i]);
    if (made == nullptr || made->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return bad("results must be engine configurations");
    keep(*made, kGraph, CUDNN_TYPE_VOID_PTR, graph), keep(*made, kNumber, CUDNN_TYPE_INT64, engines[static_cast<size_t>(i)]);
    made->finished = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

std::vector<Operation> graph_of_plan(const Descriptor& plan) { return graph_of(*plan.one<const Descriptor*>(kGraph)); }

int64_t workspace_of_plan(const Descriptor& plan) {
  // As if shapes were so many times as large, and a forward had a workspace.
  const char* times = std::getenv("TRIREME_STANDIN_WORKSPACE");
  return standin::workspace_of(graph_of_plan(plan), times != nullptr) * (times != nullptr ? std::atoll(times) : 1);
}

cudnnStatus_t get(Descriptor& d, int name, int64_t most, int64_t* count, void* into) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) return recommend(d, most, count, into);
  *count = 1;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    Descriptor* engine = of(*static_cast<void**>(into));
    if (engine == nullptr || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return bad("an engine is wanted here");
    keep(*engine, kNumber, CUDNN_TYPE_INT64, d.one<int64_t>(kNumber));
    engine->finished = true;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *count = d.one<int64_t>(kNumber) == kVarying && most > 0 ? 1 : 0;
    if (*count == 1) *static_cast<cudnnBackendNumericalNote_t*>(into) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) return bad("attribute " + std::to_string(name) + " is not known");
  *static_cast<int64_t*>(into) = workspace_of_plan(d);
  return CUDNN_STATUS_SUCCESS;
}

struct Handle {
  void* stream = nullptr;
};

std::atomic<int64_t> executions = 0;

// A plan's work with its pointers; scalars are read when it is enqueued.
struct Work {
  std::vector<Operation> graph;
  std::map<int64_t, void*> addresses;
  std::vector<std::unique_ptr<int64_t>> scalars{};
};

std::string bind(Work& work, const Descriptor& pack) {
  const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const std::map<int64_t, Tensor> outer = standin::outer_tensors(work.graph);
  for (size_t i = 0; i < uids.size(); ++i) {
    const auto at = outer.find(uids[i]);
    if (at == outer.end()) return "the graph has no outer tensor " + std::to_string(uids[i]);
    if (pointers[i] == nullptr) return "tensor " + std::to_string(uids[i]) + " has no address";
    const Tensor& t = at->second;
    if (!t.by_value && std::bit_cast<uintptr_t>(pointers[i]) % static_cast<uintptr_t>(t.alignment) != 0)
      return "tensor " + std::to_string(t.uid) + " is not at a multiple of " + std::to_string(t.alignment) + " bytes";
    void* address = pointers[i];
    if (t.by_value) {
      address = work.scalars.emplace_back(std::make_unique<int64_t>()).get();
      std::memcpy(address, pointers[i], static_cast<size_t>(t.bytes()));
    }
    if (!work.addresses.emplace(t.uid, address).second) return "tensor " + std::to_string(t.uid) + " has two addresses";
  }
  for (const auto& [uid, t] : outer)
    if (!work.addresses.contains(uid)) return "tensor " + std::to_string(uid) + " has no address";
  if (standin::workspace_of(work.graph, false) > 0 && pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) == nullptr)
    return "the workspace is missing";
  return "";
}

}  // namespace

extern "C" int64_t trireme_standin_executions() { return executions; }

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  thread_local std::string words;
  words = std::string(status == CUDNN_STATUS_NOT_SUPPORTED ? "not supported: " : "bad parameter: ") + last_problem;
  return words.c_str();
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = std::bit_cast<cudnnHandle_t>(std::make_unique<Handle>().release());
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  std::bit_cast<Handle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  if (!rules().contains(type)) return bad("descriptor type " + std::to_string(type) + " is not known");
  *descriptor = std::make_unique<Descriptor>(Descriptor{.type = type}).release();
  known().insert(*descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (known().erase(descriptor) == 0) return bad("a descriptor that does not exist");
  const std::unique_ptr<Descriptor> owned(std::bit_cast<Descriptor*>(descriptor));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Descriptor* d = of(descriptor);
  if (d == nullptr) return bad("a descriptor that does not exist");
  if (d->finished) return bad("attribute " + std::to_string(name) + " is set after the descriptor was finalized");
  const auto& allowed = rules().at(d->type).attributes;
  const auto at = std::find_if(allowed.begin(), allowed.end(), [&](const auto& a) { return a.first == name; });
  if (at == allowed.end())
    return bad("attribute " + std::to_string(name) + " is not one of descriptor type " + std::to_string(d->type));
  if (at->second != type) return bad("attribute " + std::to_string(name) + " has another type than " + std::to_string(type));
  Attribute attribute{type, count, std::vector<std::byte>(size_of(type) * static_cast<size_t>(count))};
  std::memcpy(attribute.bytes.data(), values, attribute.bytes.size());
  d->attributes[name] = attribute;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t* count, void* values) {
  Descriptor* d = of(descriptor);
  if (d == nullptr || !d->finished) return bad("an attribute of a descriptor that is not finalized");
  return get(*d, name, most, count, values);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor* d = of(descriptor);
  return d == nullptr ? bad("a descriptor that does not exist") : finalize(*d);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const Descriptor *how = of(plan), *with = of(pack);
  if (how == nullptr || with == nullptr || !how->finished || !with->finished) return bad("a plan or pack that is not finalized");
  auto work = std::make_unique<Work>(Work{.graph = graph_of_plan(*how), .addresses = {}});
  if (const std::string why = bind(*work, *with); !why.empty()) return bad(why);
  ++executions;
  trireme_enqueue(std::bit_cast<Handle*>(handle)->stream, work.release(), [](void* state) {
    const std::unique_ptr<Work> mine(static_cast<Work*>(state));
    standin::compute(mine->graph, mine->addresses);
  });
  return CUDNN_STATUS_SUCCESS;
}
