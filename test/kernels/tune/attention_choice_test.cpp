#include "kernels/tune/attention_choice.h"

#include "kernels/cuda_facts.h"
#include "test/catch.h"
#include "test/reference/place.h"

using namespace trireme;

namespace {

const AttentionShape kForward{.rows = 2, .tokens = 128, .heads = 4, .kv_heads = 2, .head_size = 64, .window = 0};
const AttentionShape kBackward{.backward = true, .rows = 2, .tokens = 128, .heads = 4, .kv_heads = 2, .head_size = 64, .window = 0};
AttentionShape with_documents(AttentionShape shape) {
  shape.documents = true;
  return shape;
}

const AttentionShape kOdd{.rows = 2, .tokens = 129, .heads = 4, .kv_heads = 2, .head_size = 64, .window = 0};

// The fused kernels are faster forward, ours backward.
double time_of(Device&, const AttentionShape& problem, bool fused) { return fused == problem.backward ? 2e-3 : 1e-3; }

bool takes(const AttentionShape& problem) { return tested_place() == Place::cuda && fused_refusal(problem).empty(); }

}  // namespace

TEST_CASE("an attention's words name all that its kernels are chosen by") {
  CHECK(kForward.words() == "attention B 2 T 128 H 4 K 2 D 64 window 0");
  CHECK(kBackward.words() == "attention_backward B 2 T 128 H 4 K 2 D 64 window 0");
  CHECK(with_documents(kForward).words() == "attention B 2 T 128 H 4 K 2 D 64 window 0 documents");
  AttentionShape together = kForward;
  together.together = true;
  CHECK(together.words() == "attention B 2 T 128 H 4 K 2 D 64 window 0 together");
}

TEST_CASE("of fused kernels and ours the faster are chosen for each attention") {
  Device device(tested_place());
  device.attention() = {{"before", "ours"}};
  const ChosenAttention chosen = choose_attention(device, AttentionKernels::automatic, {kForward, kBackward, kOdd}, time_of);
  CHECK(device.attention() == AttentionChoices{{"before", "ours"}});
  if (!takes(kForward) || !takes(kBackward)) {
    CHECK((tested_place() == Place::cuda || chosen.choices.empty()));
    return;
  }
  CHECK(chosen.choices == AttentionChoices{{kForward.words(), "cudnn"}, {kBackward.words(), "ours"}, {kOdd.words(), "ours"}});
  REQUIRE(chosen.reasons.size() == 3);
  CHECK(chosen.reasons[0] == kForward.words() + ": cudnn, 1.000 ms by cuDNN, 2.000 ms by ours");
  CHECK(chosen.reasons[1] == kBackward.words() + ": ours, 2.000 ms by cuDNN, 1.000 ms by ours");
  CHECK_THAT(chosen.reasons[2], ContainsSubstring("using our kernels"));
}

TEST_CASE("fused kernels that are asked for are chosen without a race, ours as well") {
  Device device(tested_place());
  const auto race = [](Device&, const AttentionShape&, bool) -> double { throw Error("timed"); };
  CHECK(choose_attention(device, AttentionKernels::ours, {kForward, kBackward}, race).choices.empty());
  const AttentionChoices chosen = choose_attention(device, AttentionKernels::cudnn, {kForward, kBackward}, race).choices;
  for (const AttentionShape& problem : {kForward, kBackward})
    if (takes(problem)) CHECK(chosen.at(problem.words()) == "cudnn");
}

TEST_CASE("fused kernels are held against ours before they are chosen, and timed") {
  Device device(tested_place());
  for (const AttentionShape& problem : {kForward, kBackward, with_documents(kForward), with_documents(kBackward)}) {
    if (!takes(problem)) continue;
    CHECK(fused_agrees(device, problem));
    const AttentionShape small{
        .rows = 1, .tokens = 128, .heads = 1, .kv_heads = 1, .head_size = 64, .documents = problem.documents};
    for (const int64_t document : {0, 1, 40, 1000}) CHECK(time_attention(device, small, true, document) > 0);
  }
}
