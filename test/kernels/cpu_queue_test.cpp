// The communication lane: in order, concurrent with the compute lane, ordered with it only by
// events; its errors reach the next waiter.
#include "kernels/cpu_queue.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"

using namespace trireme;

TEST_CASE("a lane does its work in order, more of it than its ring holds") {
  std::vector<int> done;
  {
    CpuQueue lane;
    for (int i = 0; i < 2000; ++i) lane.push([&done, i] { done.push_back(i); });
    lane.wait(1000);
    CHECK(lane.pushed() == 2000);
  }
  REQUIRE(done.size() == 2000);
  for (int i = 0; i < 2000; ++i) CHECK(done[static_cast<size_t>(i)] == i);
}

TEST_CASE("an exception of a lane's work reaches the next waiter, and later work is dropped") {
  CpuQueue lane;
  std::atomic<int> done = 0;
  lane.push([&done] { ++done; });
  lane.push([] { throw Error("the wire is cut"); });
  const uint64_t last = lane.push([&done] { ++done; });
  CHECK_THROWS_WITH(lane.wait(last), ContainsSubstring("the wire is cut"));
  CHECK(done == 1);
}

TEST_CASE("every lane has the number of threads of the one that opens it") {
  const int before = threads_here();
  use_threads_here(before + 2);
  {
    Device device(Place::cpu);
    for (Stream* lane : {&device.comm(), &device.beside()}) {
      int seen = 0;
      lane->execute([&seen] { seen = threads_here(); });
      lane->finish();
      CHECK(seen == before + 2);
    }
  }
  use_threads_here(before);
}

TEST_CASE("streams run beside each other and meet at events") {
  Device device(Place::cpu);
  Stream &compute = device.compute(), &comm = device.comm();
  REQUIRE(comm.lane() != nullptr);
  Buffer buffer(device, 64, "test");
  const Tensor all(buffer.data(), Dtype::f32, Place::cpu, {16}), x = all.slice(0, 8), y = all.slice(8, 16);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  comm.wait(compute.record());
  comm.execute([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  run(comm, Fill{.x = x, .value = 3});
  CHECK(seconds() < 0.2);
  const Event filled = comm.record();
  run(comm, Fill{.x = y, .value = 4});
  compute.wait(filled);
  CHECK(seconds() > 0.29);
  CHECK(x.as<float>()[7] == 3);
  compute.wait(comm.record());
  CHECK(y.as<float>()[7] == 4);
}

TEST_CASE("on place none the communication lane only counts") {
  Device device(Place::none);
  run(device.comm(), Fill{.x = Tensor(nullptr, Dtype::f32, Place::none, {8})});
  CHECK(device.side_tally().at("fill").calls == 1);
  CHECK(device.tally().empty());
  device.compute().wait(device.comm().record());
}
