#include "checkpoint/checkpoints.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "checkpoint/reader.h"
#include "checkpoint/run_lock.h"
#include "test/catch.h"
#include "test/checkpoint/state.h"

using namespace trireme;

namespace {

// The message with which `call` throws an Exception.
template <class Exception, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("what is saved comes back to the bit: f32, bf16, i32, one element, none, several pages, extreme counters") {
  const Scratch scratch;
  const auto make = [](uint64_t seed) {
    OwnedState owned;
    owned.add("embedding", Dtype::f32, {513, 1023});  // two pages
    owned.add("adam_v/embedding", Dtype::f32, {513, 1023});
    owned.add("w.bf16", Dtype::bf16, {3, 2, 5, 7});
    owned.add("w.i32", Dtype::i32, {11});
    owned.add("one", Dtype::f32, {1});
    owned.add("nothing", Dtype::f32, {0, 4});
    owned.add("nothing.bf16", Dtype::bf16, {0});
    owned.fill(seed);
    return owned;
  };
  OwnedState saved = make(1), restored = make(2);
  saved.state.counters = {{"lowest", std::numeric_limits<int64_t>::min()},
                          {"highest", std::numeric_limits<int64_t>::max()},
                          {"zero", 0},
                          {"data cursor \"quoted\"", -1}};
  saved.state.config = "a: \"b\"\n\tümläut \\ \x01 end";
  Checkpoints checkpoints({}, scratch / "run");
  const SaveResult result = checkpoints.save(1234, saved.state);
  CHECK(result.bytes >= 2 * 513 * 1023 * 4);
  CHECK(result.digest == state_digest(saved.state));
  CHECK(checkpoints.restore(restored.state) == 1234);
  CHECK(restored.bytes() == saved.bytes());
  CHECK(restored.state.counters == saved.state.counters);
  CHECK(restored.state.config == saved.state.config);
  CHECK(state_digest(restored.state) == result.digest);
  CHECK(checkpoints.take_warnings().empty());
  CHECK(verify_checkpoint(step_path(scratch / "run", 1234)).digest == result.digest);
}

TEST_CASE("an empty run directory restores nothing and touches nothing") {
  const Scratch scratch;
  Checkpoints checkpoints({}, scratch / "run");
  OwnedState owned = small_state(5);
  const auto before = owned.bytes();
  CHECK(checkpoints.restore(owned.state) == std::nullopt);
  CHECK(owned.bytes() == before);
}

TEST_CASE("a save is due at every multiple of checkpoint.every, never when that is 0, and never at step 0") {
  const Scratch scratch;
  const Checkpoints every5({.every = 5, .keep = 2}, scratch / "a"), never({.every = 0, .keep = 2}, scratch / "b");
  for (int64_t step = 0; step < 12; ++step) {
    CHECK(every5.due(step) == (step == 5 || step == 10));
    CHECK_FALSE(never.due(step));
  }
}

TEST_CASE("however tensors are cut, the digest is the same and they come back to the bit") {
  const Scratch scratch;
  struct Cut {
    std::vector<std::vector<int64_t>> offsets, shapes;
  };
  const std::vector<int64_t> global{5, 6, 7};
  const std::vector<Cut> cuts{{{{0, 0, 0}}, {{5, 6, 7}}},
                              {{{0, 0, 0}, {2, 0, 0}}, {{2, 6, 7}, {3, 6, 7}}},                         // rows
                              {{{0, 0, 0}, {0, 0, 3}}, {{5, 6, 3}, {5, 6, 4}}},                         // columns
                              {{{0, 0, 0}, {0, 1, 0}, {0, 1, 5}}, {{5, 1, 7}, {5, 5, 5}, {5, 5, 2}}},   // both
                              {{{0, 0, 0}, {5, 0, 0}, {0, 2, 0}}, {{5, 2, 7}, {0, 6, 7}, {5, 4, 7}}}};  // and an empty shard
  std::vector<float> values(5 * 6 * 7);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 0.25f;
  const auto make = [&](const Cut& cut, bool with_values) {
    OwnedState owned;
    for (size_t p = 0; p < cut.shapes.size(); ++p) {
      const std::vector<int64_t>&o = cut.offsets[p], &s = cut.shapes[p];
      float* to = owned.add("w", Dtype::f32, global, o, s).local.as<float>();
      for (int64_t i = 0; i < s[0]; ++i)
        for (int64_t j = 0; j < s[1]; ++j)
          for (int64_t k = 0; k < s[2]; ++k)
            *to++ = with_values ? values[static_cast<size_t>(((o[0] + i) * 6 + o[1] + j) * 7 + o[2] + k)] : -1.0f;
    }
    return owned;
  };
  const std::string digest = state_digest(make(cuts[0], true).state);
  for (size_t from = 0; from < cuts.size(); ++from) {
    Checkpoints checkpoints({}, scratch / std::to_string(from));
    CHECK(checkpoints.save(1, make(cuts[from], true).state).digest == digest);
    for (const Cut& to : cuts) {
      OwnedState restored = make(to, false);
      CHECK(checkpoints.restore(restored.state) == 1);
      CHECK(restored.bytes() == make(to, true).bytes());
    }
    OwnedState part;  // as one rank of many would: only its own rows
    part.add("w", Dtype::f32, global, {3, 0, 0}, {1, 6, 7});
    CHECK(checkpoints.restore(part.state) == 1);
    CHECK(std::memcmp(part.bytes()[0].data(), &values[3 * 42], 42 * sizeof(float)) == 0);
  }
}

TEST_CASE("the state's digest changes with an element, two swapped elements, a name, a shape, a dtype and a counter") {
  const auto base = [](const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    OwnedState owned;
    owned.add(name, dtype, std::move(shape));
    auto* bytes = static_cast<unsigned char*>(owned.state.slices[0].local.data());
    for (int64_t i = 0; i < owned.state.slices[0].local.bytes(); ++i) bytes[i] = static_cast<unsigned char>(i);
    return owned;
  };
  OwnedState changed = base("w", Dtype::f32, {2, 6});
  const std::string first = state_digest(changed.state);
  float* w = changed.state.slices[0].local.as<float>();
  std::swap(w[0], w[11]);
  CHECK(state_digest(changed.state) != first);
  std::swap(w[0], w[11]);
  CHECK(state_digest(changed.state) == first);
  w[4] = -w[4];
  CHECK(state_digest(changed.state) != first);
  CHECK(state_digest(base("v", Dtype::f32, {2, 6}).state) != first);
  CHECK(state_digest(base("w", Dtype::f32, {6, 2}).state) != first);
  CHECK(state_digest(base("w", Dtype::i32, {2, 6}).state) != first);
  OwnedState counted = base("w", Dtype::f32, {2, 6});
  counted.state.counters["tokens"] = 0;
  CHECK(state_digest(counted.state) != first);
}

TEST_CASE("the newest checkpoints are kept, and only they") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2, 3, 4, 5, 6}, 3);
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{4, 5, 6});
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "run/checkpoints")) entries += entry.is_directory();
  CHECK(entries == 3);
}

TEST_CASE("a damaged checkpoint does not count as one that is kept") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2, 3}, 2);
  write_text(step_path(scratch / "run", 3) + "/shard-00000.h5", "nothing");
  save_steps(scratch / "run", {4}, 2);
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{2, 3, 4});  // 2 and 4 are the valid ones
  save_steps(scratch / "run", {5}, 2);
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{4, 5});
}

TEST_CASE("an old checkpoint that cannot be deleted is a warning") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2}, 2);
  std::filesystem::create_directories(step_path(scratch / "run", 1) + "/a directory of the user");
  Checkpoints checkpoints(keeping(2), scratch / "run");
  checkpoints.save(3, small_state(3).state);
  const std::vector<std::string> warnings = checkpoints.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("cannot delete an old checkpoint"));
  CHECK(checkpoints.take_warnings().empty());
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{2, 3});
}

TEST_CASE("the same state at the same step is not written twice, and a damaged or different one is replaced") {
  const Scratch scratch;
  Checkpoints checkpoints(keeping(3), scratch / "run");
  CHECK(checkpoints.save(7, small_state(7).state).bytes > 0);
  const std::string manifest = read_text(step_path(scratch / "run", 7) + "/manifest.json");
  CHECK(checkpoints.save(7, small_state(7).state).bytes == 0);
  CHECK(read_text(step_path(scratch / "run", 7) + "/manifest.json") == manifest);

  CHECK(checkpoints.save(7, small_state(8).state).bytes > 0);
  OwnedState restored = small_state(0);
  CHECK(checkpoints.restore(restored.state) == 7);
  CHECK(restored.bytes() == small_state(8).bytes());

  write_text(step_path(scratch / "run", 7) + "/manifest.json", "");
  CHECK(checkpoints.save(7, small_state(8).state).bytes > 0);
  CHECK(checkpoints.restore(restored.state) == 7);
  CHECK(std::filesystem::directory_iterator(scratch / "run/checkpoints") != std::filesystem::directory_iterator());
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "run/checkpoints"))
    CHECK(entry.path().filename() == "step-00000007");
}

TEST_CASE("a save whose tensors have not changed since an earlier step fails loudly") {
  const Scratch scratch;
  Checkpoints checkpoints(keeping(3), scratch / "run");
  checkpoints.save(1, small_state(1).state);
  CHECK_THAT(message_of<CheckpointError>([&] { checkpoints.save(2, small_state(1).state); }),
             ContainsSubstring("no tensor has changed since step 1"));
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{1});
  checkpoints.save(2, small_state(2).state);
}

TEST_CASE("tensors that are missing, extra or of other shapes are one error that lists them all, and touch nothing") {
  const Scratch scratch;
  save_steps(scratch / "run", {1});
  Checkpoints checkpoints(keeping(3), scratch / "run");
  OwnedState other;
  other.add("block.0.w", Dtype::f32, {5, 3});
  other.add("head", Dtype::f32, {7});
  other.add("tail", Dtype::f32, {2});
  other.fill(9);
  const auto before = other.bytes();
  const std::string message = message_of<CheckpointError>([&] { checkpoints.restore(other.state); });
  CHECK_THAT(message, ContainsSubstring("has block.0.w as f32[3, 5], the model as f32[5, 3]"));
  CHECK_THAT(message, ContainsSubstring("has head as bf16[7], the model as f32[7]"));
  CHECK_THAT(message, ContainsSubstring("lacks tail f32[2]"));
  CHECK_THAT(message, ContainsSubstring("has adam_m/block.0.w f32[3, 5], the model does not"));
  CHECK(other.bytes() == before);
}

TEST_CASE("a restore asks about the saved config before tensors, and lists eight differences of tensors at most") {
  const Scratch scratch;
  save_steps(scratch / "run", {1});
  Checkpoints checkpoints(keeping(3), scratch / "run");
  OwnedState other;
  for (int i = 0; i < 20; ++i) other.add("other." + std::to_string(i), Dtype::f32, {2});
  const std::string message = message_of<CheckpointError>([&] { checkpoints.restore(other.state); });
  CHECK(std::ranges::count(message, '\n') == 9);
  CHECK_THAT(message, ContainsSubstring(" more differences"));
  std::string asked;
  other.state.accept = [&](const Manifest& saved) {
    asked = saved.config;
    throw ConfigError("refused");
  };
  CHECK(message_of<ConfigError>([&] { checkpoints.restore(other.state); }) == "refused");
  CHECK(asked == small_state(1).state.config);
}

TEST_CASE("starting fresh in a directory that holds checkpoints is refused, also when they are damaged") {
  const Scratch scratch;
  { const Checkpoints fresh({}, scratch / "run", Resume::never); }
  save_steps(scratch / "run", {3});
  const auto start = [&] { Checkpoints({}, scratch / "run", Resume::never); };
  CHECK_THAT(message_of<ConfigError>(start), ContainsSubstring("--resume auto"));
  std::filesystem::remove(step_path(scratch / "run", 3) + "/manifest.json");
  CHECK_THAT(message_of<ConfigError>(start), ContainsSubstring("train.name"));
}

TEST_CASE("checkpoints of which none is usable are an error, not a fresh start") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2});
  for (const int64_t step : {1, 2}) std::filesystem::remove(step_path(scratch / "run", step) + "/shard-00000.h5");
  Checkpoints checkpoints({}, scratch / "run");
  OwnedState owned = small_state(0);
  const std::string message = message_of<CheckpointError>([&] { checkpoints.restore(owned.state); });
  CHECK_THAT(message, ContainsSubstring("no usable checkpoint"));
  CHECK_THAT(message, ContainsSubstring("step-00000001"));
  CHECK_THAT(message, ContainsSubstring("step-00000002"));
}

TEST_CASE("restore_from takes one checkpoint exactly, or the newest valid one of another run") {
  const Scratch scratch;
  save_steps(scratch / "old", {1, 2, 3});
  OwnedState owned = small_state(0);
  {
    Checkpoints branch({}, scratch / "branch");
    CHECK(branch.restore_from(step_path(scratch / "old", 2) + "/", owned.state) == 2);
    CHECK(owned.bytes() == small_state(2).bytes());
    CHECK(branch.restore_from(scratch / "old", owned.state) == 3);
    CHECK(branch.restore_from(scratch / "old/checkpoints", owned.state) == 3);
  }
  std::filesystem::rename(step_path(scratch / "old", 1), scratch / "best");  // a checkpoint may be carried away
  write_text(step_path(scratch / "old", 3) + "/manifest.json", "{}");
  Checkpoints other({}, scratch / "other");
  CHECK(other.restore_from(scratch / "best", owned.state) == 1);
  CHECK(other.restore_from(scratch / "old", owned.state) == 2);
  CHECK(other.take_warnings().size() == 1);
  CHECK_THROWS_AS(other.restore_from(step_path(scratch / "old", 3), owned.state), CheckpointError);
  CHECK_THROWS_AS(other.restore_from(scratch / "absent", owned.state), CheckpointError);
}

TEST_CASE("restore_from refuses what a later automatic resume would undo") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2});
  save_steps(scratch / "other", {9});
  Checkpoints checkpoints({}, scratch / "run");
  OwnedState owned = small_state(0);
  CHECK_THAT(message_of<ConfigError>([&] { checkpoints.restore_from(step_path(scratch / "run", 1), owned.state); }),
             ContainsSubstring("newer than"));
  CHECK_THAT(message_of<ConfigError>([&] { checkpoints.restore_from(scratch / "other", owned.state); }),
             ContainsSubstring("already holds step 2"));
  CHECK(checkpoints.restore_from(step_path(scratch / "run", 2), owned.state) == 2);
  CHECK(checkpoints.restore_from(scratch / "run", owned.state) == 2);
}

TEST_CASE("a lock is waited for until its holder ends, also one whose directory is removed meanwhile") {
  for (const bool removed : {false, true}) {
    const Scratch scratch;
    auto first = std::make_optional<RunLock>(scratch / "run");
    CHECK_THROWS_AS(RunLock(scratch / "run"), ConfigError);
    std::thread ends([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (removed) std::filesystem::remove_all(scratch / "run");
      first.reset();
    });
    const RunLock second(scratch / "run", 60);
    ends.join();
    CHECK(second.held());
  }
}

TEST_CASE("a second process in the same run directory is refused, with the name of the holder") {
  const Scratch scratch;
  auto first = std::make_optional<Checkpoints>(CheckpointConfig{}, scratch / "run");
  const std::string message = message_of<ConfigError>([&] { Checkpoints({}, scratch / "run"); });
  CHECK_THAT(message, ContainsSubstring("process " + std::to_string(getpid())));
  first->finish();
  { const Checkpoints second({}, scratch / "run"); }
  first.emplace(CheckpointConfig{}, scratch / "run");
  first->save(1, small_state(1).state);

  std::filesystem::remove(scratch / "run/lock");  // somebody "cleans up", and another job starts
  Checkpoints usurper({}, scratch / "run");
  usurper.save(2, small_state(2).state);
  CHECK_THAT(message_of<CheckpointError>([&] { first->save(3, small_state(3).state); }), ContainsSubstring("no longer ours"));
  CHECK(steps_left(scratch / "run") == std::vector<int64_t>{1, 2});
}

TEST_CASE("temporaries of a killed save are swept, other files stay") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2});
  const std::string checkpoints = scratch / "run/checkpoints";
  std::filesystem::rename(step_path(scratch / "run", 2), step_path(scratch / "run", 2) + ".replaced");  // its successor never came
  std::filesystem::copy(step_path(scratch / "run", 1), step_path(scratch / "run", 1) + ".replaced");    // its successor came
  std::filesystem::create_directories(checkpoints + "/step-00000003.tmp");
  write_text(checkpoints + "/step-00000003.tmp/shard-00000.h5.tmp", "half");
  std::filesystem::create_directories(checkpoints + "/step-00000003-0123456789abcdef.tmp");
  std::filesystem::create_directories(checkpoints + "/step-00000003-of my own.tmp");
  write_text(checkpoints + "/notes.tmp", "mine");
  std::filesystem::create_directories(checkpoints + "/step-3.tmp");
  const Checkpoints opened({}, scratch / "run");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) left.insert(entry.path().filename());
  CHECK(left == std::set<std::string>{"notes.tmp", "step-00000001", "step-00000002", "step-00000003-of my own.tmp", "step-3.tmp"});
}

TEST_CASE("tools see what is there: list, diff, and one tensor by name") {
  const Scratch scratch;
  save_steps(scratch / "run", {1, 2});
  const std::string one = step_path(scratch / "run", 1), two = step_path(scratch / "run", 2);
  CHECK(diff_checkpoints(one, one) == std::nullopt);
  CHECK(diff_checkpoints(one, two) == "adam_m/block.0.w: the elements differ");

  OwnedState nearly = small_state(1);
  nearly.state.counters["tokens"] = 101;
  Checkpoints(keeping(3), scratch / "near").save(1, nearly.state);
  CHECK(diff_checkpoints(one, scratch / "near") == "counter tokens: 100 and 101");

  const CheckpointReader reader(scratch / "run");
  CHECK(reader.manifest().step == 2);
  CHECK(reader.manifest().config == small_state(2).state.config);
  CHECK(reader.manifest().counters.at("tokens") == 200);
  OwnedState head;
  head.add("head", Dtype::bf16, {7});
  reader.read("head", head.state.slices[0].local);
  CHECK(head.bytes()[0] == small_state(2).bytes()[2]);
  CHECK_THROWS_AS(reader.read("tail", head.state.slices[0].local), CheckpointError);

  std::filesystem::remove(two + "/shard-00000.h5");
  const std::vector<CheckpointInfo> found = list_checkpoints(scratch / "run");
  REQUIRE(found.size() == 2);
  CHECK(found[0].problem.empty());
  CHECK(found[0].tensors == 3);
  CHECK(found[0].bytes > 0);
  CHECK_THAT(found[1].problem, ContainsSubstring("shard-00000.h5"));
  CHECK(CheckpointReader(scratch / "run").manifest().step == 1);
  CHECK(list_checkpoints(scratch / "absent").empty());
  CHECK_THROWS_AS(CheckpointReader(scratch / "absent"), CheckpointError);
}

TEST_CASE("states that cannot be a checkpoint are refused as a fault of the program, and leave nothing") {
  const Scratch scratch;
  Checkpoints checkpoints({}, scratch / "run");
  const auto refused = [&](const std::function<void(OwnedState&)>& change) {
    OwnedState owned = small_state(1);
    change(owned);
    const std::string message = message_of<Error>([&] { checkpoints.save(1, owned.state); });
    CHECK(std::filesystem::is_empty(scratch / "run/checkpoints"));
    return message;
  };
  CHECK_THAT(refused([](OwnedState& s) { s.add("part", Dtype::f32, {4}, {0}, {3}); }), ContainsSubstring("lack 1 elements"));
  CHECK_THAT(refused([](OwnedState& s) {
               s.add("part", Dtype::f32, {4}, {0}, {3});
               s.add("part", Dtype::f32, {4}, {1}, {3});
             }),
             ContainsSubstring("overlap"));
  CHECK_THAT(refused([](OwnedState& s) { s.add("part", Dtype::f32, {4}, {2}, {3}); }), ContainsSubstring("exceeds its tensor"));
  CHECK_THAT(refused([](OwnedState& s) { s.add("a b", Dtype::f32, {4}); }), ContainsSubstring("plain tensor name"));
  CHECK_THAT(refused([](OwnedState& s) { s.state.config = "\xff\xfe"; }), ContainsSubstring("manifest"));
}

TEST_CASE("h5dump opens a shard and shows the numbers") {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) {
    WARN("h5dump is not installed: not checked");
    return;
  }
  const Scratch scratch;
  OwnedState owned;
  float* w = owned.add("adam_v/block.0.w", Dtype::f32, {2, 2}).local.as<float>();
  w[0] = 1.5f, w[3] = -0.25f;
  owned.add("gain", Dtype::bf16, {3}).local.as<Bf16>()[1] = Bf16(-2.5f);
  owned.add("half", Dtype::f32, {4}, {0}, {2});
  owned.add("half", Dtype::f32, {4}, {2}, {2}).local.as<float>()[1] = 77.0f;
  owned.add("nothing", Dtype::f32, {0});
  Checkpoints({}, scratch / "run").save(1, owned.state);
  const std::string command = "h5dump " + step_path(scratch / "run", 1) + "/shard-00000.h5 > " + scratch.path() + "/dump 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string dump = read_text(scratch / "dump");
  for (const char* shown : {"\"adam_v:block.0.w\"", "(0,0): 1.5, 0", "(1,0): 0, -0.25", "\"gain\"", "0, -2.5, 0", "\"half@0\"",
                            "\"half@2\"", "0, 77", "\"nothing\"", "\":page_digests\""})
    CHECK_THAT(dump, ContainsSubstring(shown));
}
