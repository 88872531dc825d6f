#include "train/step/step_launcher.h"

#include <cstring>
#include <utility>

#include "kernels/copy.h"

namespace trireme {
namespace {

// Graphs need steps that do not overlap. With a divided state they do: updated weights arrive while
// the next forward runs. Nor do they take messages between stages, which wait for each other along
// several branches: CUDA does not promise that all branches of a graph advance.
bool wants_graphs(const RunConfig& config, const Mesh& mesh, const Device& device) {
  return device.place() == Place::cuda && config.kernels.graph && mesh.owner_group().size() == 1 && config.parallel.pp == 1;
}

}  // namespace

StepLauncher::StepLauncher(const RunConfig& config, const Mesh& mesh, Device& device) : device_(device) {
  if (wants_graphs(config, mesh, device)) graph_.emplace(device);
  for (Slot& slot : results_) slot.memory.emplace(device, (1 + SquaredSum::kSize) * bytes_of(Dtype::f32));
  if (device.place() != Place::cuda) return;
  const int64_t bytes = 4 * config.train.batch / mesh.replicas() * config.model.context * bytes_of(Dtype::i32);
  batch_.emplace(device, bytes, "a batch");
  for (std::optional<StagingBuffer>& batch : batches_) batch.emplace(device, bytes);
}

// Alternates between two staging buffers, so that the previous batch may still be in flight.
Batch StepLauncher::upload(const Batch& batch) {
  if (!batch_) return batch;
  Batch there = batch;
  StagingBuffer& staging = *batches_[static_cast<size_t>(uploads_++ % 2)];
  staging.wait();
  int64_t at = 0;
  for (Tensor Batch::*field : {&Batch::tokens, &Batch::targets, &Batch::positions, &Batch::document_start}) {
    const Tensor& from = batch.*field;
    const Tensor pinned(staging.data() + at, Dtype::i32, Place::cpu, {from.size()});
    std::memcpy(pinned.data(), from.data(), static_cast<size_t>(from.bytes()));
    there.*field = Tensor(batch_->data() + at, Dtype::i32, Place::cuda, {from.dim(0), from.dim(1)});
    copy(device_.compute(), there.*field, pinned);
    at += from.bytes();
  }
  staging.posted(device_.compute());
  return there;
}

void StepLauncher::launch(bool apart, const std::function<void()>& step) {
  const bool first = std::exchange(launched_, apart) != apart;  // it allocates scratch memory, which a recording must not
  if (first && graph_) graph_.emplace(device_);
  if (!graph_ || first || device_.compute().tally() != nullptr)
    step();
  else if (!graph_->replay())
    graph_->record(step);
}

void StepLauncher::send(int64_t step, const Tensor& loss, const Tensor& squared_norm, const StepLimits& limits) {
  Stream& compute = device_.compute();
  Slot& slot = results_[slot_of(step)];
  const Place here = compute.place() == Place::none ? Place::none : Place::cpu;
  copy(compute, Tensor(slot.memory->data(), Dtype::f32, here, {1}), loss);
  copy(compute, Tensor(slot.memory->data() + sizeof(float), Dtype::f32, here, {SquaredSum::kSize}), squared_norm);
  slot.memory->posted(compute);
  slot.limits = limits;
}

StepLauncher::Results StepLauncher::wait(int64_t step) const {
  const Slot& slot = results_[slot_of(step)];
  slot.memory->wait();
  Results results{.limits = slot.limits};
  std::memcpy(&results.loss, slot.memory->data(), sizeof results.loss);
  std::memcpy(&results.squared_norm, slot.memory->data() + sizeof(float), sizeof results.squared_norm);
  return results;
}

}  // namespace trireme
