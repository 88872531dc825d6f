// The parts of a step, of whole runs on two ranks.
#include <algorithm>
#include <sstream>

#include "test/catch.h"
#include "test/train/workplace.h"

using namespace trireme;

TEST_CASE("the parts of a step add up to it, and waits are along the axes of the mesh") {
  const Workplace place;
  for (const std::string axis : {"dp", "tp", "pp"}) {
    INFO(axis);
    succeed(place.train({"train.name=" + axis, "parallel." + axis + "=2", "model.heads=2", "train.microbatch=1"}, 2));
    double whole = 0, parts = 0, waits = 0;
    std::istringstream in(place.run(axis, "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const Json record = Json::parse(line);
      if (!record.contains("loss")) continue;
      const Json& of = record["parts_ms"];
      double sum = 0;
      for (const auto& [name, value] : of.members()) {
        const double ms = value.get<double>();
        CHECK(ms >= 0);
        sum += ms;
        if (name.starts_with("wait_")) CHECK(name == "wait_" + axis);
      }
      whole += record["step_ms"].get<double>(), parts += sum, waits += of["wait_" + axis].get<double>();
      for (const std::string name : {"data", "forward", "backward", "optimizer", "other"}) CHECK(of.contains(name));
    }
    CHECK(parts > 0.98 * whole);
    CHECK(parts < 1.02 * whole);
    CHECK(waits > 0);
    const std::string log = place.run(axis, "log.txt");
    const auto backward = log.find(" % backward"), waiting = log.find(" % waiting for " + axis);  // on a busy machine, this alone
    CHECK(log.find("time of steps: ") < std::min(backward, waiting));
  }
}
