// AdamW as an UpdateRule: two moments of each weight.
#include "kernels/ops/adamw.h"
#include "train/step/update_rule.h"

namespace trireme {
namespace {

class AdamWRule final : public UpdateRule {
 public:
  AdamWRule(const TrainConfig& config, const std::vector<RulePart>& parts, Arena& temporaries) : config_(config) {
    for (const RulePart& part : parts)
      parts_.push_back({.weight = part.weight,
                        .master = part.master,
                        .m = part.states[0],
                        .v = part.states[1],
                        .grad = part.gradient,
                        .decay = part.decays ? static_cast<float>(config.decay) : 0.0f,
                        .clears = part.clears,
                        .whole = part.whole});
    table_ = temporaries.take(Dtype::i32, {static_cast<int64_t>(parts_.size()), AdamW::kRow});
    schedule_ = temporaries.take(Dtype::f32, {AdamWSchedule::kSize});
  }

  void write_tables(Stream& stream) override { run(stream, AdamWTable{.table = table_, .parts = parts_}); }

  void schedule(Stream& stream, double lr, int64_t step) override {
    run(stream, AdamWSchedule{.schedule = schedule_,
                              .lr = static_cast<float>(lr),
                              .beta1 = static_cast<float>(config_.beta1),
                              .beta2 = static_cast<float>(config_.beta2),
                              .step = step});
  }

  void update(Stream& stream, const Tensor& gate) override {
    run(stream, AdamW{.parts = parts_,
                      .table = table_,
                      .gate = gate,
                      .schedule = schedule_,
                      .beta1 = static_cast<float>(config_.beta1),
                      .beta2 = static_cast<float>(config_.beta2),
                      .eps = static_cast<float>(config_.eps),
                      .rounding = config_.rounding});
  }

 private:
  const TrainConfig config_;
  std::vector<AdamWPart> parts_;
  Tensor table_, schedule_;
};

}  // namespace

RuleKind adamw_rule() {
  return {.states = {"adam_m", "adam_v"},
          .make = [](const TrainConfig& config, const std::vector<RulePart>& parts, Arena& temporaries) {
            return std::unique_ptr<UpdateRule>(std::make_unique<AdamWRule>(config, parts, temporaries));
          }};
}

}  // namespace trireme
