#include "test/simulation/state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "test/simulation/world.h"

namespace trireme::simulation {

namespace {

constexpr int64_t kElements = 12;  // of each tensor: ranks divide it
constexpr const char* kNames[] = {"w", "adam_m/w"};

float value_of(int64_t step, size_t tensor, int64_t element) {
  Random random(static_cast<uint64_t>(step * 1000 + element * 10) + tensor);
  return static_cast<float>(random.below(1 << 20)) / 7;
}

// A container's bytes and the places of its datasets.
struct Container {
  std::string bytes;
  std::vector<Hdf5Dataset> datasets;
};

// Made by libhdf5 in a real file, outside of the simulation.
const Container& container_of(const std::vector<Hdf5Spec>& specs, const std::vector<Hdf5Attribute>& attributes) {
  static std::map<std::string, Container> made;
  std::string key;
  for (const Hdf5Spec& spec : specs) {
    key += spec.name;
    for (const int64_t dim : spec.shape) key += ":" + std::to_string(dim);
  }
  if (const auto found = made.find(key); found != made.end()) return found->second;
  const Outside outside;
  const std::string path = std::filesystem::temp_directory_path() / ("simulation-" + std::to_string(::getpid()) + ".h5");
  Container container{.bytes = {}, .datasets = create_hdf5(path, specs, attributes)};
  std::ifstream in(path, std::ios::binary);
  container.bytes.assign(std::istreambuf_iterator<char>(in), {});
  std::filesystem::remove(path);
  return made.emplace(key, std::move(container)).first->second;
}

}  // namespace

State::State(int64_t rank, int64_t ranks) {
  const int64_t here = kElements / ranks;
  for (const char* const name : kNames) {
    std::vector<float>& memory = memory_.emplace_back(static_cast<size_t>(here));
    slices_.push_back({.name = name,
                       .global_shape = {kElements},
                       .offset = {rank * here},
                       .local = Tensor(memory.data(), Dtype::f32, Place::cpu, {here})});
  }
}

void State::fill(int64_t step) {
  for (size_t t = 0; t < memory_.size(); ++t)
    for (size_t i = 0; i < memory_[t].size(); ++i)
      memory_[t][i] = value_of(step, t, slices_[t].offset[0] + static_cast<int64_t>(i));
}

std::string State::differs_from(int64_t step) const {
  for (size_t t = 0; t < memory_.size(); ++t)
    for (size_t i = 0; i < memory_[t].size(); ++i)
      if (memory_[t][i] != value_of(step, t, slices_[t].offset[0] + static_cast<int64_t>(i)))
        return slices_[t].name + " differs in element " + std::to_string(i);
  return "";
}

CheckpointState State::as_of(int64_t step) const {
  const auto layout = [](const std::string&, int64_t ranks) -> Layout {
    return [ranks](int64_t rank) { return State(rank, ranks).slices(); };
  };
  return {.slices = slices_,
          .counters = {{"tokens", 100 * step}, {"seed", 1}},
          .config = "train: {}\n",
          .finite = true,
          .layout = layout};
}

Io simulated_io() {
  Io io;
  io.create_hdf5 = [](const std::string& path, const std::vector<Hdf5Spec>& specs, const std::vector<Hdf5Attribute>& attributes) {
    const Container* container = nullptr;
    {
      const Unowned unowned;
      container = &container_of(specs, attributes);
    }
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool fine = fd >= 0;
    for (size_t done = 0; fine && done < container->bytes.size();) {
      const ssize_t n = pwrite(fd, container->bytes.data() + done, container->bytes.size() - done, static_cast<off_t>(done));
      fine = n >= 0 || errno == EINTR;
      if (n > 0) done += static_cast<size_t>(n);
    }
    const int reason = errno;
    if (fd >= 0) close(fd);
    if (!fine) throw DataError("cannot create " + path + ": " + std::strerror(reason));
    return container->datasets;
  };
  return io;
}

}  // namespace trireme::simulation
