#include "train/run/attempt.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "train/run/launcher_words.h"

namespace trireme {
namespace {

constexpr size_t kLoop = 3;  // equal attempts without a new checkpoint are a crash loop
constexpr double kLongestDelay = 60;

int number_of(ExitCode code) { return static_cast<int>(code); }

// Whether two failures are the same one.
bool alike(const Attempt& a, const Attempt& b) {
  return a.code == b.code && a.cause == b.cause && a.rank == b.rank && a.host == b.host && a.step == b.step;
}

// Whether the last `count` attempts ended with this code.
bool all_ended_with(const std::vector<Attempt>& attempts, size_t count, int code) {
  return attempts.size() >= count && std::all_of(attempts.end() - static_cast<std::ptrdiff_t>(count), attempts.end(),
                                                 [&](const Attempt& a) { return a.code == code; });
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

Attempt judge_attempt(Attempt attempt, const AttemptEnd& end, const RunFiles& before, const RunFiles& after) {
  attempt.code = end.code, attempt.asked = end.asked;
  attempt.first_checkpoint = before.newest_checkpoint, attempt.last_checkpoint = after.newest_checkpoint;
  if (after.exit.identity != before.exit.identity) {
    attempt.cause = after.exit.cause, attempt.host = after.exit.host, attempt.message = after.exit.message;
    attempt.rank = after.exit.rank, attempt.step = after.exit.step;
    // A launcher has codes of its own for a run that was asked to stop and has saved.
    if (after.exit.code == number_of(ExitCode::stopped)) attempt.code = number_of(ExitCode::stopped);
    if (after.exit.code == number_of(ExitCode::machine)) attempt.code = number_of(ExitCode::machine);
    return attempt;
  }
  if (after.metrics != before.metrics) attempt.step = after.last_step;
  if (end.code == number_of(ExitCode::done) || end.code == number_of(ExitCode::stopped)) return attempt;
  if (end.frozen > 0) {
    attempt.code = number_of(ExitCode::hang), attempt.cause = "frozen";
    attempt.message = text("frozen: no rank was given a processor for ", std::llround(end.frozen), " s");
  } else if (const std::optional<LostRank> lost = lost_rank(end.heard)) {
    attempt.cause = lost->cause, attempt.rank = lost->rank, attempt.host = lost->host, attempt.message = lost->words;
  }
  return attempt;
}

int code_when_stopped(const Attempt& last) {
  const bool by_launcher = last.code == 1 || last.code > 128;
  return by_launcher && last.step <= std::max<int64_t>(last.last_checkpoint, 0) ? number_of(ExitCode::stopped) : last.code;
}

Next next_after(const std::vector<Attempt>& attempts, int64_t max_restarts) {
  using enum Next::Kind;
  const Attempt& last = attempts.back();
  if (last.code == number_of(ExitCode::done)) return {.kind = done, .why = {}};
  if (last.code == number_of(ExitCode::stopped)) return {.kind = stopped, .why = {}};
  // But for the numerics, again where it has run before: a lock not yet free, a server not yet back, a read that failed once.
  const Attempt* const before = attempts.size() > 1 ? &attempts[attempts.size() - 2] : nullptr;
  const bool again = before == nullptr ? last.made_progress()
                                       : before->code != last.code || (last.made_progress() && before->message != last.message &&
                                                                       !all_ended_with(attempts, kLoop, last.code));
  for (const ExitCode code : {ExitCode::usage, ExitCode::data, ExitCode::checkpoint, ExitCode::numerics})
    if (last.code == number_of(code) && (!again || code == ExitCode::numerics))
      return {.kind = give_up, .why = "the same would happen again"};
  if (last.code == 126 || last.code == 127) return {.kind = give_up, .why = "the command cannot be run"};

  const auto from_end = [&](size_t i) -> const Attempt& { return attempts[attempts.size() - 1 - i]; };
  // Attempts at the end: without a new checkpoint; of them, equal ones; of them, those that lost the same rank, at whatever step.
  size_t vain = 0, same = 0, same_rank = 0;
  while (vain < attempts.size() && !from_end(vain).made_progress()) ++vain;
  while (same < vain && alike(from_end(same), last)) ++same;
  while (same_rank < vain && from_end(same_rank).rank == last.rank && from_end(same_rank).host == last.host) ++same_rank;
  const std::string where =
      (last.rank >= 0 ? " on rank " + std::to_string(last.rank) : "") + (last.host.empty() ? "" : " (" + last.host + ")");
  if (same >= kLoop)
    return {.kind = give_up,
            .why = std::to_string(same) + " attempts in a row ended the same way, " +
                   (last.step > 0 ? "after step " + std::to_string(last.step) : "before the first step") + where +
                   ", without a new checkpoint: a crash loop"};
  if (static_cast<int64_t>(vain) > max_restarts)
    return {.kind = give_up, .why = std::to_string(vain) + " attempts in a row made no new checkpoint (--max-restarts)"};
  const double delay = last.code < number_of(ExitCode::internal) && last.code > 1 ? 5
                       : vain <= 1                                                ? 0
                                   : std::min(kLongestDelay, static_cast<double>(int64_t{1} << std::min<size_t>(vain - 2, 10)));
  return {.kind = restart, .why = {}, .delay = delay, .fewer = same_rank >= 2 && last.rank >= 0};
}

}  // namespace trireme
