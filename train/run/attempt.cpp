#include "train/run/attempt.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace trireme {
namespace {

constexpr size_t kLoop = 3;  // equal attempts without a new checkpoint are a crash loop
constexpr double kLongestDelay = 60;

int number_of(ExitCode code) { return static_cast<int>(code); }

// Whether two failures are the same one.
bool alike(const Attempt& a, const Attempt& b) {
  return a.code == b.code && a.cause == b.cause && a.rank == b.rank && a.host == b.host && a.step == b.step;
}

}  // namespace

std::string json_line(const Attempt& a) {
  const Json line{{"attempt", a.number},
                  {"started", a.started},
                  {"seconds", a.seconds},
                  {"ranks", a.ranks},
                  {"code", a.code},
                  {"cause", a.cause},
                  {"rank", a.rank},
                  {"host", a.host},
                  {"step", a.step},
                  {"first_checkpoint", a.first_checkpoint},
                  {"last_checkpoint", a.last_checkpoint},
                  {"message", a.message}};
  return line.dump() + "\n";
}

std::string describe(const Attempt& a) {
  const std::string step = a.step >= 0 ? " after step " + std::to_string(a.step) : "";
  return "attempt " + std::to_string(a.number) + " ended with " + std::to_string(a.code) + step +
         (a.message.empty() ? "" : ": " + a.message);
}

Attempt judge_attempt(Attempt attempt, int code, const RunFiles& before, const RunFiles& after) {
  attempt.code = code;
  attempt.first_checkpoint = before.newest_checkpoint, attempt.last_checkpoint = after.newest_checkpoint;
  if (after.exit.identity == before.exit.identity) return attempt;
  attempt.cause = after.exit.cause, attempt.host = after.exit.host, attempt.message = after.exit.message;
  attempt.rank = after.exit.rank, attempt.step = after.exit.step;
  return attempt;
}

Next next_after(const std::vector<Attempt>& attempts, int64_t max_restarts) {
  using enum Next::Kind;
  const Attempt& last = attempts.back();
  if (last.code == number_of(ExitCode::done)) return {.kind = done, .why = {}};
  if (last.code == number_of(ExitCode::stopped)) return {.kind = stopped, .why = {}};
  // But for the numerics, once more where it has run before: a lock not yet free, a server not yet back.
  const bool again = attempts.size() > 1 && attempts[attempts.size() - 2].code != last.code;
  for (const ExitCode code : {ExitCode::usage, ExitCode::data, ExitCode::checkpoint, ExitCode::numerics})
    if (last.code == number_of(code) && (!again || code == ExitCode::numerics))
      return {.kind = give_up, .why = "the same would happen again"};
  if (last.code == 126 || last.code == 127) return {.kind = give_up, .why = "the command cannot be run"};

  size_t vain = 0, same = 0;  // attempts at the end without a new checkpoint; of them, at the end, equal
  while (vain < attempts.size() && !attempts[attempts.size() - 1 - vain].made_progress()) ++vain;
  while (same < vain && alike(attempts[attempts.size() - 1 - same], last)) ++same;
  const std::string where =
      (last.rank >= 0 ? " on rank " + std::to_string(last.rank) : "") + (last.host.empty() ? "" : " (" + last.host + ")");
  if (same >= kLoop)
    return {.kind = give_up,
            .why = std::to_string(same) + " attempts in a row ended the same way, after step " + std::to_string(last.step) + where +
                   ", without a new checkpoint: a crash loop"};
  if (static_cast<int64_t>(vain) > max_restarts)
    return {.kind = give_up, .why = std::to_string(vain) + " attempts in a row made no new checkpoint (--max-restarts)"};
  const double delay = last.code < number_of(ExitCode::internal) && last.code > 1 ? 5
                       : vain <= 1                                                ? 0
                                   : std::min(kLongestDelay, static_cast<double>(int64_t{1} << std::min<size_t>(vain - 2, 10)));
  return {.kind = restart, .why = {}, .delay = delay, .fewer = same >= 2 && last.rank >= 0};
}

}  // namespace trireme
