// Turns GCC's callbacks for taken edges into the counters that libFuzzer expects. Compiled without
// instrumentation.
#include <cstddef>
#include <cstdint>

extern "C" {

extern char __executable_start;

// The section that libFuzzer looks for.
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t trireme_edges[1 << 18];

// Position in the program, independent of its load address.
void __sanitizer_cov_trace_pc() {
  const auto at = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - reinterpret_cast<uintptr_t>(&__executable_start);
  uint8_t& edge = trireme_edges[(at * 0x9e3779b97f4a7c15u) >> 46];
  if (edge != 255) ++edge;
}

// Needed by the linker; libFuzzer does not use it.
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

}  // extern "C"
