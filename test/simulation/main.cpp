// Runs the tests, or with --seed N one schedule with its trace, or with --count N as many seeds.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "test/runner.h"
#include "test/simulation/planted.h"
#include "test/simulation/schedule.h"

using namespace trireme::simulation;

namespace {

int run_seed(const Options& options) {
  const std::string text = explain(options);
  std::fputs(text.c_str(), stdout);
  return run_schedule(options).failure.empty() ? 0 : 1;
}

int run_seeds(Options options, uint64_t count) {
  const auto begin = std::chrono::steady_clock::now();
  int64_t calls = 0, commits = 0, restores = 0, faults = 0;
  int failed = 0;
  for (uint64_t i = 0; i < count; ++i, ++options.seed) {
    const Result result = run_schedule(options);
    calls += result.calls, commits += result.commits, restores += result.restores, faults += result.faults;
    if (result.failure.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(options.seed), result.failure.c_str());
    std::fflush(stdout);
    if (++failed == 10) break;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%.0f schedules a second; %lld calls, %lld saves, %lld restores, %lld faults; %d failed\n",
              static_cast<double>(count) / seconds, static_cast<long long>(calls), static_cast<long long>(commits),
              static_cast<long long>(restores), static_cast<long long>(faults), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  uint64_t count = 0;
  bool one = false;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--seed") options.seed = std::stoull(argv[i + 1]), one = true;
    if (word == "--from") options.seed = std::stoull(argv[i + 1]);
    if (word == "--count") count = std::stoull(argv[i + 1]);
    if (word == "--planted") options.planted = planted_of(argv[i + 1]);
  }
  if (one) return run_seed(options);
  if (count > 0) return run_seeds(options, count);
  return run_tests(argc, argv);
}
