#include "kernels/part_clock.h"

#include <chrono>
#include <string>
#include <thread>

#include "test/catch.h"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

double seconds_of(PartClock& clock, const std::string& name, bool waits = false) {
  for (const PartClock::Part& part : clock.parts())
    if (name == part.name.data() && part.waits == waits) return part.seconds;
  return -1;
}

}  // namespace

TEST_CASE("a part inside another has its own time, and all parts add up to the whole") {
  PartClock clock;
  const auto begin = Clock::now();
  clock.restart();
  {
    const PartSpan outer(&clock, "forward");
    std::this_thread::sleep_for(20ms);
    {
      const PartSpan inner(&clock, "tp", true);
      std::this_thread::sleep_for(40ms);
    }
    const PartSpan nothing(nullptr, "tp", true);
  }
  std::this_thread::sleep_for(10ms);
  double sum = 0;
  for (const PartClock::Part& part : clock.parts()) sum += part.seconds;
  const double whole = seconds_since(begin);
  CHECK(seconds_of(clock, "forward") >= 0.02);
  CHECK(seconds_of(clock, "tp", true) >= 0.04);
  CHECK(seconds_of(clock, "other") >= 0.01);
  CHECK(seconds_of(clock, "tp") == -1);
  CHECK(sum <= whole);
  CHECK(sum > whole - 0.005);
  clock.restart();
  CHECK(seconds_of(clock, "forward") == 0);
}

TEST_CASE("another thread's parts, long names and too many parts change nothing that is known") {
  PartClock clock;
  clock.restart();
  std::thread([&] { const PartSpan span(&clock, "backward"); }).join();
  CHECK(clock.parts().size() == 1);
  { const PartSpan span(&clock, "twelve bytes"); }
  CHECK(clock.parts().size() == 1);
  for (int i = 0; i < 40; ++i) {
    const PartSpan span(&clock, std::to_string(i).c_str());
    std::this_thread::sleep_for(1ms);
  }
  CHECK(clock.parts().size() == 24);
  CHECK(seconds_of(clock, "22") >= 0.001);
  CHECK(seconds_of(clock, "23") == -1);
  CHECK(seconds_of(clock, "other") >= 0.017);
}
