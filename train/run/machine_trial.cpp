#include "train/run/machine_trial.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "kernels/copy.h"
#include "kernels/cuda_machine.h"
#include "kernels/ops/fill.h"
#include "kernels/tune/product_trial.h"

namespace trireme {
namespace {

constexpr int64_t kSideOnGpu = 4096, kSideOnCpu = 512;  // of the matrices
constexpr double kTrialWindow = 1e-3;                   // seconds, shorter than a scheduler's turn
constexpr size_t kLeastWindows = 8;
constexpr int kCopySweeps = 4;
constexpr int64_t kCopyPiece = 1 << 20;  // on CPUs: a copy that is shorter than a scheduler's turn
constexpr int64_t kPatternPiece = 16 << 20;
constexpr int64_t kPartOfFree = 8;  // of free memory, so much less is used
constexpr double kForMemory = 2;    // seconds

// Best, and 1 - third best / best; smaller values are better.
void note_best(std::vector<double> seconds, double work, double& rate, double& spread) {
  std::ranges::sort(seconds);
  rate = work / seconds.front();
  spread = 1 - seconds.front() / seconds[std::min<size_t>(2, seconds.size() - 1)];
}

uint64_t bits_of(Stream& stream, const Tensor& x, std::vector<float>& host) {
  host.resize(static_cast<size_t>(x.size()));
  copy(stream, Tensor(host.data(), Dtype::f32, Place::cpu, {x.size()}), x.view({x.size()}));
  stream.finish();
  return digest(host.data(), x.bytes());
}

// Numbers that differ from word to word; `mask` turns all their bits around.
void write_pattern(uint64_t* words, int64_t first, uint64_t mask) {
  for (int64_t i = 0; i < kPatternPiece / 8; ++i) words[i] = (static_cast<uint64_t>(first + i) * 0x9E3779B97F4A7C15u) ^ mask;
}

int64_t words_that_differ(const uint64_t* words, int64_t first, uint64_t mask) {
  int64_t differ = 0;
  for (int64_t i = 0; i < kPatternPiece / 8; ++i)
    differ += words[i] != ((static_cast<uint64_t>(first + i) * 0x9E3779B97F4A7C15u) ^ mask);
  return differ;
}

int64_t free_memory(const Device& device) {
  if (device.place() == Place::cuda) return gpu_memory().free;
  TextReader in(text_of_file("/proc/meminfo"));
  std::string name, unit;
  for (int64_t kib = 0; in >> name >> kib; std::getline(in, unit))
    if (name == "MemAvailable:") return kib * 1024;
  return 0;
}

}  // namespace

void try_products(Device& device, double seconds, MachineFacts& facts) {
  const int64_t side = device.place() == Place::cuda ? kSideOnGpu : kSideOnCpu;
  const ProductShape shape{.m = side, .n = side, .k = side, .transpose_b = true, .wide = true};
  const ProductTrial trial(device, Dtype::bf16, shape);
  std::optional<ProductTrial> others;  // of f32, which other instructions of a processor compute; only their bits count
  if (device.place() == Place::cpu) others.emplace(device, Dtype::f32, shape);
  Stream& stream = device.compute();
  const auto products = [&](int64_t count) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < count; ++i) run(stream, trial.product());
    stream.finish();
    return seconds_since(begin) / static_cast<double>(count);
  };
  std::vector<float> host;
  const auto result = [&] {
    std::array<uint64_t, 2> bits{bits_of(stream, trial.product().c, host), 0};
    if (others) run(stream, others->product()), bits[1] = bits_of(stream, others->product().c, host);
    return digest(bits.data(), sizeof bits);
  };
  products(1);
  const uint64_t first = result();
  const auto count = std::max<int64_t>(1, static_cast<int64_t>(kTrialWindow / products(1)));
  std::vector<double> windows;
  facts.products_checked = facts.products_differ = 0;
  for (const auto begin = Clock::now(); windows.size() < kLeastWindows || seconds_since(begin) < seconds;) {
    windows.push_back(products(count));
    ++facts.products_checked, facts.products_differ += result() != first;
  }
  facts.product_bits = hex(first);
  note_best(windows, trial.product().flops(), facts.products, facts.products_spread);
}

void try_copies(Device& device, int64_t bytes, MachineFacts& facts) {
  const Buffer from(device, bytes, "copies to measure"), to(device, bytes, "copies to measure");
  const int64_t piece = device.place() == Place::cuda ? bytes : std::min(bytes, kCopyPiece);
  const auto part = [&](const Buffer& of, int64_t at) { return Tensor(of.data() + at, Dtype::f32, device.place(), {piece / 4}); };
  Stream& stream = device.compute();
  run(stream, Fill{.x = Tensor(from.data(), Dtype::f32, device.place(), {bytes / 4}), .value = 1});
  std::vector<double> seconds;
  for (int sweep = 0; sweep <= kCopySweeps; ++sweep)  // the first maps the memory
    for (int64_t at = 0; at + piece <= bytes; at += piece) {
      stream.finish();
      const auto begin = Clock::now();
      copy(stream, part(to, at), part(from, at)), stream.finish();
      if (sweep > 0) seconds.push_back(seconds_since(begin));
    }
  note_best(seconds, 2 * static_cast<double>(piece), facts.copies, facts.copies_spread);
}

void try_memory(Device& device, int64_t bytes, MachineFacts& facts, const std::function<void(std::byte* memory)>& between) {
  int64_t pieces = std::min(bytes, free_memory(device) / kPartOfFree) / kPatternPiece;
  facts.memory_bytes = facts.memory_errors = 0;
  if (pieces == 0) return;
  const Buffer memory(device, pieces * kPatternPiece, "memory to check");
  std::vector<uint64_t> words(kPatternPiece / 8);
  const Tensor host(words.data(), Dtype::f32, Place::cpu, {kPatternPiece / 4});
  const auto piece = [&](int64_t i) {
    return Tensor(memory.data() + i * kPatternPiece, Dtype::f32, device.place(), {kPatternPiece / 4});
  };
  Stream& stream = device.compute();
  const auto begin = Clock::now();
  write_pattern(words.data(), 0, 0), copy(stream, piece(0), host), stream.finish();
  pieces = std::clamp<int64_t>(static_cast<int64_t>(kForMemory / (4 * seconds_since(begin))), 1,
                               pieces);  // as many as there is time for
  facts.memory_bytes = pieces * kPatternPiece;
  for (const uint64_t mask : {uint64_t{0}, ~uint64_t{0}}) {
    for (int64_t i = 0; i < pieces; ++i) {
      write_pattern(words.data(), i * kPatternPiece / 8, mask);
      copy(stream, piece(i), host), stream.finish();
    }
    if (between) between(memory.data());
    for (int64_t i = 0; i < pieces; ++i) {
      copy(stream, host, piece(i)), stream.finish();
      facts.memory_errors += words_that_differ(words.data(), i * kPatternPiece / 8, mask);
    }
  }
}

}  // namespace trireme
