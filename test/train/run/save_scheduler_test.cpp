// The copy of the state that a save is written from, and the benchmark of saves.
#include <algorithm>
#include <vector>

#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/step/host_state.h"

namespace trireme {

TEST_CASE("what is overwritten after the state was copied is not in the copy, unless the copy is the state itself") {
  Device device(Place::cpu, read_cpu_facts());
  std::vector<float> large(3 << 20, 1.0f), small{2.0f, 3.0f};  // several blocks; less than one
  const auto slice = [](const char* name, std::vector<float>& x) {
    const auto n = static_cast<int64_t>(x.size());
    return TensorSlice{.name = name, .global_shape = {n}, .offset = {0}, .local = Tensor(x.data(), Dtype::f32, Place::cpu, {n})};
  };
  const std::vector<TensorSlice> slices{slice("large", large), slice("small", small)};
  for (const Copies copies : {Copies::always, Copies::where_needed}) {
    std::fill(large.begin(), large.end(), 1.0f);
    HostState state(device, slices, copies);
    state.fetch();
    state.wait();
    std::fill(large.begin(), large.end(), 5.0f);
    const float* copy = state.slices()[0].local.as<float>();
    const float expected = copies == Copies::always ? 1.0f : 5.0f;
    CHECK(std::count(copy, copy + large.size(), expected) == static_cast<int64_t>(large.size()));
    CHECK(state.slices()[1].local.as<float>()[1] == 3.0f);
    state.store();
    CHECK(large.back() == expected);
  }
}

TEST_CASE("bench save measures the cost of saving, and leaves nothing behind") {
  const Workplace place;
  const Ended ended =
      run_trireme(place.scratch.path(), {"bench", "save", "config.yaml", "--rounds", "2", "--set", "train.runs=here"});
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  for (const char* part :
       {"memcpy", "snapshot", "a save alone", "beside steps", "steps wait", "a save costs", "2 rounds of", "every 5 steps"})
    CHECK_THAT(ended.out, ContainsSubstring(part));
  CHECK(std::filesystem::is_empty(place.scratch / "here"));
  // Short steps beside a save that takes much longer: thousands of them, of which a checkpoint keeps as little as of a few.
  const Ended many =
      run_trireme(place.scratch.path(), {"bench", "save", "config.yaml", "--rounds", "30", "--set", "train.runs=here", "--set",
                                         "model.context=8", "--set", "train.batch=1", "--set", "train.microbatch=1"});
  INFO(many.err);
  CHECK(many.code == 0);
  const Ended unknown = run_trireme(place.scratch.path(), {"bench", "save", "config.yaml", "--rounds", "1"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("--rounds"));
}

}  // namespace trireme
