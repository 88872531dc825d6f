// Tests that a forgotten wait between two lanes is reported with both lines, and that the same code
// with the wait is not.
#include "kernels/race_checker.h"

#include <array>
#include <optional>
#include <source_location>

#include "kernels/memory.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"

using namespace trireme;

namespace {

using At = std::source_location;

// Three inline lanes: the checker's result does not depend on when the work is done.
struct Lanes {
  OrderChecker order;
  std::array<float, 64> memory{};
  std::array<std::array<Bf16, 64>, 3> elsewhere{};  // destination of each lane's reads
  Stream a = lane("a"), b = lane("b"), c = lane("c");

  Stream lane(const char* name) {
    Stream stream(Cpu{}, nullptr);
    stream.check_order(&order, order.lane(name));
    return stream;
  }
  Tensor floats(int64_t begin, int64_t end) { return Tensor(memory.data(), Dtype::f32, Place::cpu, {64}).slice(begin, end); }
  void write(Stream& stream, const Tensor& x, At at = At::current()) { run(stream, Fill{.x = x, .value = 1}, at); }
  void read(Stream& stream, const Tensor& x, At at = At::current()) {
    run(stream, Cast{.y = Tensor(elsewhere[stream.order_lane()].data(), Dtype::bf16, Place::cpu, {x.size()}), .x = x}, at);
  }
};

// The checker's message; empty if there is none.
template <class Work>
std::string complaint_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string line(At at) { return "race_checker_test.cpp:" + std::to_string(at.line()); }

}  // namespace

TEST_CASE("a forgotten wait is reported with both lines, in each of the three hazards") {
  struct Hazard {
    decltype(&Lanes::read) first, second;
    const char* told;
  };
  for (const Hazard& hazard :
       {Hazard{&Lanes::write, &Lanes::read, "the b lane's cast reads what was written by the a lane's fill"},
        Hazard{&Lanes::read, &Lanes::write, "the b lane's fill writes what was read by the a lane's cast"},
        Hazard{&Lanes::write, &Lanes::write, "the b lane's fill writes what was written by the a lane's fill"}})
    for (const bool waits : {false, true}) {
      Lanes l;
      const Tensor x = l.floats(0, 16);
      const At first = At::current();
      (l.*hazard.first)(l.a, x, first);
      if (waits) l.b.wait(l.a.record());
      const At second = At::current();
      const std::string message = complaint_of([&] { (l.*hazard.second)(l.b, x, second); });
      INFO(message);
      if (waits) {
        CHECK(message.empty());
      } else {
        CHECK_THAT(message, ContainsSubstring(hazard.told) && ContainsSubstring("b.wait(a.record()) is missing"));
        CHECK_THAT(message, ContainsSubstring(line(first)) && ContainsSubstring(line(second)));
      }
    }
}

TEST_CASE("an op is refused before it runs, and the caller's line is the door's") {
  Lanes l;
  const Fill one{.x = l.floats(0, 8), .value = 1}, two{.x = l.floats(0, 8), .value = 2};
  const At before = At::current();
  run(l.a, one);  // the line after that
  const std::string message = complaint_of([&] { run(l.b, two); });
  const At after = At::current();
  const auto number = [](unsigned n) { return "race_checker_test.cpp:" + std::to_string(n) + ")"; };
  CHECK_THAT(message, ContainsSubstring(number(before.line() + 1)) && ContainsSubstring(number(after.line() - 1)));
  CHECK(l.memory[0] == 1);
}

TEST_CASE("reads beside reads need no order, nor does a lane with itself") {
  Lanes l;
  const Tensor x = l.floats(0, 32);
  CHECK_NOTHROW(l.read(l.a, x), l.read(l.b, x), l.read(l.a, x));
  CHECK_NOTHROW(l.write(l.c, l.floats(32, 64)), l.write(l.c, l.floats(40, 48)), l.read(l.c, l.floats(44, 60)));
  CHECK_NOTHROW(l.write(l.a, l.floats(8, 8)));  // nothing
}

TEST_CASE("only bytes that both touch need an order") {
  Lanes l;
  l.write(l.a, l.floats(16, 32));
  l.write(l.b, l.floats(0, 16));
  l.read(l.b, l.floats(32, 48));
  CHECK_THAT(complaint_of([&] { l.read(l.b, l.floats(31, 40)); }),
             ContainsSubstring("this access: bytes 0 to 4 of 36, the other: bytes 60 to 64 of 64"));
  CHECK_THAT(complaint_of([&] { l.write(l.b, l.floats(8, 17)); }),
             ContainsSubstring("this access: bytes 32 to 36 of 36, the other: bytes 0 to 4 of 64"));
  CHECK_THAT(complaint_of([&] { l.read(l.b, l.floats(20, 22)); }),
             ContainsSubstring("this access: bytes 0 to 8 of 8, the other: bytes 16 to 24 of 64"));
}

TEST_CASE("a write inside of another's leaves the rest to that") {
  Lanes l;
  l.write(l.a, l.floats(0, 48));
  const Event a = l.a.record();
  l.b.wait(a);
  l.write(l.b, l.floats(16, 32));
  CHECK_THAT(complaint_of([&] { l.read(l.c, l.floats(0, 16)); }), ContainsSubstring("the a lane's"));
  l.c.wait(a);
  l.read(l.c, l.floats(0, 16));
  l.read(l.c, l.floats(32, 48));
  CHECK_THAT(complaint_of([&] { l.read(l.c, l.floats(0, 48)); }), ContainsSubstring("the b lane's"));
  CHECK_THAT(complaint_of([&] { l.write(l.a, l.floats(31, 32)); }), ContainsSubstring("the b lane's"));
}

TEST_CASE("a write waits for every lane that has read") {
  Lanes l;
  const Tensor x = l.floats(0, 8);
  l.write(l.a, x);
  const Event written = l.a.record();
  l.b.wait(written), l.c.wait(written);
  l.read(l.b, x), l.read(l.c, x);
  l.a.wait(l.b.record());
  CHECK_THAT(complaint_of([&] { l.write(l.a, x); }), ContainsSubstring("read by the c lane's cast"));
  l.a.wait(l.c.record());
  l.write(l.a, x);
}

TEST_CASE("of a lane's reads the last counts, and no other lane's is forgotten for it") {
  Lanes l;
  const Tensor x = l.floats(0, 8);
  l.read(l.b, x), l.read(l.c, x), l.read(l.c, x);
  l.a.wait(l.c.record());
  CHECK_THAT(complaint_of([&] { l.write(l.a, x); }), ContainsSubstring("read by the b lane's cast"));
  l.a.wait(l.b.record());
  l.read(l.c, x);
  CHECK_THAT(complaint_of([&] { l.write(l.a, x); }), ContainsSubstring("read by the c lane's cast"));
}

TEST_CASE("order comes through a third lane, if that had waited when it was recorded") {
  for (const bool early : {false, true}) {
    Lanes l;
    const Tensor x = l.floats(0, 8);
    l.write(l.a, x);
    const Event before = l.b.record();
    l.b.wait(l.a.record());
    const Event after = l.b.record();
    l.c.wait(early ? before : after);
    CHECK(complaint_of([&] { l.write(l.c, x); }).empty() == !early);
  }
}

TEST_CASE("the wait for an event does not cover what its lane is handed later") {
  Lanes l;
  const Tensor x = l.floats(0, 8);
  const Event before = l.a.record();
  l.write(l.a, x);
  const Event after = l.a.record();
  l.b.wait(before);
  CHECK_THAT(complaint_of([&] { l.read(l.b, x); }), ContainsSubstring("written by the a lane's"));
  l.b.wait(after), l.b.wait(before);  // an older one does not undo it
  l.read(l.b, x);
  l.write(l.c, l.floats(8, 16));
  l.b.wait({});
  CHECK_FALSE(complaint_of([&] { l.read(l.b, l.floats(0, 16)); }).empty());
}

TEST_CASE("a device's lanes are checked, the inline one as if it ran beside the others") {
  Device device(Place::cpu);
  Buffer buffer(device, 1024, "test");
  const Tensor x(buffer.data(), Dtype::f32, Place::cpu, {256});
  Stream& compute = device.compute();
  const bool early = GENERATE(true, false);
  if (early) device.comm();  // the lane exists before, or is created after
  device.check_order(true);
  Stream& comm = device.comm();
  run(compute, Fill{.x = x});
  CHECK_THAT(complaint_of([&] { run(comm, Fill{.x = x}); }), ContainsSubstring("comm.wait(compute.record()) is missing"));
  comm.wait(compute.record());
  run(comm, Fill{.x = x, .value = 3});
  CHECK_THAT(complaint_of([&] { run(compute, Fill{.x = x}); }), ContainsSubstring("compute.wait(comm.record()) is missing"));
  device.measure(true);  // replaces the device's compute stream
  CHECK_FALSE(complaint_of([&] { run(device.compute(), Fill{.x = x}); }).empty());
  compute.wait(comm.record());
  run(compute, Fill{.x = x});
  device.check_order(false);
  run(comm, Fill{.x = x});
  device.check_order(true);
  run(compute, Fill{.x = x.slice(0, 0)});
  comm.lane()->wait(comm.lane()->pushed());
  CHECK(x.as<float>()[255] == 0);
}

TEST_CASE("an event from before the checker was switched off covers nothing that came later") {
  Device device(Place::cpu);
  Buffer buffer(device, 64, "test");
  const Tensor x(buffer.data(), Dtype::f32, Place::cpu, {16});
  device.check_order(true);
  for (int i = 0; i < 8; ++i) device.compute().record();
  const Event old = device.compute().record();
  device.check_order(false);
  device.check_order(true);
  run(device.compute(), Fill{.x = x});
  device.comm().wait(old);
  CHECK_FALSE(complaint_of([&] { run(device.comm(), Fill{.x = x}); }).empty());
}

TEST_CASE("memory that was given back has no past") {
  Device device(Place::cpu);
  device.check_order(true);
  OrderChecker& order = *device.compute().order();
  std::optional<Buffer> buffer(std::in_place, device, 4096, "test");
  const OrderChecker::Access later{.lane = device.comm().order_lane(), .op = "later", .data = buffer->data(), .bytes = 4096};
  run(device.compute(), Fill{.x = Tensor(buffer->data(), Dtype::f32, Place::cpu, {1024})});
  CHECK_THROWS_AS(order.read(later), Error);
  buffer.reset();
  order.read(later);
}

TEST_CASE("on place none there is no memory to check") {
  Device device(Place::none);
  device.check_order(true);
  const Tensor x(nullptr, Dtype::f32, Place::none, {8});
  run(device.compute(), Fill{.x = x});
  run(device.comm(), Fill{.x = x});
  CHECK(device.compute().order() == nullptr);
}
