// Asks NVIDIA's own cuDNN for its plans of attention on a GPU that is described by a file, with a
// driver that answers without one. For scripts/cudnn_plans.py.
//   cudnn_plans GPU.json < SHAPES     one a line: backward rows tokens heads kv_heads head_size window documents
// Prints, for each, groups and MiB of workspace, or why there is no plan. The driver prints names of
// kernels to the standard error.
#include <fstream>
#include <iostream>
#include <iterator>

#include "kernels/cuda/cudnn.cpp"

namespace trireme {

// There is no GPU here, and nothing runs.
int current_gpu() { return 0; }
int gpu_generation() { return 9; }
std::byte* scratch(CudaLane&, int64_t) { return nullptr; }
CUstream_st* stream_of(CudaLane&) { return nullptr; }

namespace {

Descriptor described_gpu(const std::string& path) {
  std::ifstream in(path);
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, json.c_str(), json.size() + 1);
  gpu.finish();
  return gpu;
}

void print_plans(const Descriptor& gpu) {
  for (AttentionShape s; std::cin >> s.backward >> s.rows >> s.tokens >> s.heads >> s.kv_heads >> s.head_size >> s.window >>
                         s.together >> s.documents;) {
    try {
      const Recipe recipe = make_recipe(s, gpu);
      std::cout << recipe.groups << " " << (recipe.workspace >> 20) << std::endl;
    } catch (const Error& error) {
      std::cout << error.what() << std::endl;
    }
  }
}

}  // namespace
}  // namespace trireme

int main(int, char** arguments) {
  try {
    trireme::print_plans(trireme::described_gpu(arguments[1]));
    return 0;
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
