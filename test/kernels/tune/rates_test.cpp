#include "kernels/tune/rates.h"

#include <algorithm>

#include "kernels/tune/multiply_add.h"
#include "test/catch.h"

using namespace trireme;

TEST_CASE("the copy rate of this machine is between a slow disk's and a fast GPU's") {
  Device device(Place::cpu);
  const double rate = copy_bandwidth(device, int64_t{1} << 24);
  CHECK(rate > 0.1);
  CHECK(rate < 10000);
  CHECK(device.ledger().bytes() == 0);
}

TEST_CASE("the product rate of this machine is measured over all shapes together") {
  Device device(Place::cpu, read_cpu_facts());
  const ProductShape small{.m = 64, .n = 64, .k = 64}, thin{.m = 1, .n = 512, .k = 512, .transpose_b = true, .count = 3};
  const double both = product_rate(device, Dtype::f32, {small, thin});
  CHECK(both > 0.01);
  CHECK(both < 1e6);
  CHECK(product_rate(device, Dtype::bf16, {{.m = 64, .n = 33, .k = 17, .transpose_a = true, .accumulate = true}}) > 0);
  CHECK(product_rate(device, Dtype::f32, {}) == 0);
}

TEST_CASE("the rate of instructions is a core's, of all threads, and unknown where products have others") {
  const Device device(Place::cpu, read_cpu_facts());
  const Threads threads(1);
  const double rate = instruction_rate(device, Dtype::f32);
  CHECK(rate > 0.1);
  CHECK(rate < 600);  // 2 instructions of 16 lanes at 5 GHz are 320
  CHECK(instruction_rate(device, Dtype::bf16) >= (device.cpu().amx_bf16 ? 0 : 0.1));
  CHECK(instruction_rate(Device(Place::cpu, {.amx_bf16 = true}), Dtype::bf16) == 0);
  CHECK(instruction_rate(Device(Place::none), Dtype::f32) == 0);
  CHECK(multiply_and_add_plain(30) == 10 * multiply_and_add_plain(3));
}

TEST_CASE("the windows of a product rate are ordered, and their spread is a share") {
  Device device(Place::cpu, read_cpu_facts());
  const ProductShape small{.m = 64, .n = 64, .k = 64}, thin{.m = 1, .n = 512, .k = 512, .transpose_b = true, .count = 3};
  const std::vector<double> windows = ProductTrial(device, Dtype::f32, small).windows();
  const bool interrupted = windows.size() == 3 && windows.back() >= 0.5;  // the first product, on a busy machine
  REQUIRE((windows.size() == ProductTrial::kWindows || interrupted));
  CHECK(std::ranges::is_sorted(windows));
  CHECK(windows.front() > 0);
  const SteadyRate rate = steady_product_rate(device, Dtype::f32, {small, thin});
  CHECK(rate.best > 0.01);
  CHECK(rate.best < 1e6);
  CHECK(rate.spread >= 0);
  CHECK(rate.spread < 1);
  CHECK(steady_product_rate(device, Dtype::f32, {}).best == 0);
  CHECK(device.ledger().bytes() == device.workspace_bytes());
}
