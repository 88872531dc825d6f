#include "train/run/step_repeat.h"

#include <bit>
#include <vector>

#include "checkpoint/digest.h"
#include "parallel/host_collectives.h"
#include "train/step/host_state.h"

namespace trireme {
namespace {

// A digest of what this rank computes in a step, while the scope lasts.
class Fingerprint {
 public:
  explicit Fingerprint(TrainState& run) : run_(run) {
    run.hooks.added = [this](size_t unit, const Microbatch&) {
      if (run_.stage.units()[unit].id.kind == UnitKind::head) add(run_.loss);  // which leaves with the head's gradients
      for (const Parameter& parameter : run_.stage.parameters())
        if (parameter.unit == unit) add(parameter.gradient);
    };
  }
  ~Fingerprint() { run_.hooks.added = {}; }
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  uint64_t value() const { return value_; }

 private:
  void add(const Tensor& x) {
    if (!x || x.size() == 0) return;
    value_ = std::rotl(value_, 7) ^ digest(on_host(run_.device, x, bytes_).data(), x.bytes());
  }
  TrainState& run_;
  uint64_t value_ = 0;
  std::vector<std::byte> bytes_;
};

uint64_t fingerprint_of(TrainState& run, const Batch& batch, int64_t step) {
  const Fingerprint fingerprint(run);
  go_back_to_weights_of(run, step);
  rehearse_step(run, batch, step);
  return fingerprint.value();
}

}  // namespace

void go_back_to_weights_of(TrainState& run, int64_t step) {
  run.optimizer.skip_update(run.device.compute(), step);
  run.device.compute().finish();
}

bool same_bits(const StepResult& a, const StepResult& b) {
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  return bits(a.loss) == bits(b.loss) && bits(a.squares.plain) == bits(b.squares.plain) &&
         bits(a.squares.scaled) == bits(b.squares.scaled);
}

std::string ranks_that_vary(TrainState& run, const Batch& batch, int64_t step) {
  const uint64_t first = fingerprint_of(run, batch, step), second = fingerprint_of(run, batch, step);
  go_back_to_weights_of(run, step);
  const std::string mine = first == second ? "" : run.mesh.describe() + " on " + host_name();
  std::string all;
  for (const std::string& rank : gather(run.mesh.all(), mine))
    if (!rank.empty()) all += (all.empty() ? "" : " and ") + rank;
  return broadcast(run.mesh.all(), all);
}

std::string fault_of(const std::string& ranks) {
  return ranks.empty()
             ? "the step computed twice has equal bits on every rank, so memory changed once, or this is a bug: report it if "
               "it comes again"
             : "the step computed twice has other bits on " + ranks + ": its processor or memory is at fault";
}

}  // namespace trireme
