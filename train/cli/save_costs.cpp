#include "train/cli/save_costs.h"

#include "base/number_format.h"
#include "train/telemetry/log.h"

namespace trireme {

void say_costs(const SaveCosts& c, bool copies) {
  say(row("state           %s", human_bytes(c.bytes).c_str()));
  if (copies) {
    say(row("memcpy          %10.1f ms by one thread: %.1f GB/s", c.memcpy * 1e3, c.bytes / c.memcpy / 1e9));
    say(row("snapshot        %10.1f ms: %.2f of that memcpy", c.snapshot * 1e3, c.snapshot / c.memcpy));
  } else {
    say(row("snapshot        %10.1f ms to hand the copy to the GPU", c.snapshot * 1e3));
  }
  if (c.direct) {
    say(row("O_DIRECT        %10.2f GB/s: plain writes of %ld MiB", *c.direct / 1e9, static_cast<long>(kTransfer >> 20)));
    say(row("a save alone    %10.2f GB/s: %.0f %% of that", c.alone / 1e9, 100 * c.share));
  } else {
    say(row("a save alone    %10.2f GB/s; this file system does not write past its cache", c.alone / 1e9));
  }
  say(row("                %10.2f s until it is committed", c.committed));
  say(row("beside steps    %10.2f s until it is committed", c.committed_beside_steps));
  say(row("steps wait      %10.1f ms", 1e3 * c.wait));
  say(row("step            %10.1f ms", c.step * 1e3));
  say(row("a save costs    %10.1f ms, give or take %.1f (95 %%, %ld rounds of %ld steps with and without)", c.cost.mean * 1e3,
          c.cost.margin * 1e3, static_cast<long>(c.rounds), static_cast<long>(c.steps)));
  const double share = 100 / c.step / static_cast<double>(c.every);
  say(row("every %ld steps  %9.2f %% of the time, %.2f to %.2f", static_cast<long>(c.every), share * c.cost.mean,
          share * (c.cost.mean - c.cost.margin), share * (c.cost.mean + c.cost.margin)));
}

Json json_of(const SaveCosts& c, bool copies) {
  return {{"state_bytes", c.bytes},
          {"memcpy_seconds", copies ? Json(c.memcpy) : Json()},
          {"snapshot_seconds", c.snapshot},
          {"direct_bytes_per_second", c.direct ? Json(*c.direct) : Json()},
          {"save_bytes_per_second", c.alone},
          {"committed_seconds", c.committed},
          {"committed_beside_steps_seconds", c.committed_beside_steps},
          {"wait_seconds", c.wait},
          {"step_seconds", c.step},
          {"cost_seconds", c.cost.mean},
          {"cost_margin_seconds", c.cost.margin},
          {"rounds", c.rounds},
          {"steps_per_round", c.steps}};
}

}  // namespace trireme
