#include "train/run/supervise.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>

#include "parallel/world.h"
#include "train/health/last_words.h"
#include "train/health/signals.h"
#include "train/run/fetch_checkpoints.h"
#include "train/run/host_choice.h"

namespace trireme {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);

AttemptEnd end_of(const SuperviseIo& io, pid_t child, AttemptWatch watch) {
  for (;;) {
    if (const std::optional<int> code = io.ended(child))
      return {.code = *code, .heard = io.heard(child), .frozen = watch.frozen(), .asked = watch.asked()};
    AttemptSeen seen{.now = io.now(), .stop_signal = io.stop_signal()};
    if (watch.wants_processes(seen.now)) seen.processes = io.processes(child);
    const AttemptOrder order = watch.after(seen);
    if (!order.say.empty()) io.say("supervise: " + order.say);
    for (const pid_t rank : order.ranks) io.send(rank, order.signal);
    if (order.signal != 0 && order.ranks.empty()) io.send(child, order.signal);
    io.sleep(kPoll);
  }
}

Attempt run_once(const SuperviseIo& io, const LaunchedTraining& training, const SuperviseOptions& options, const std::string& run,
                 size_t earlier) {
  Attempt attempt{.number = static_cast<int64_t>(earlier) + 1,
                  .ranks = training.ranks,
                  .started = io.utc(),
                  .cause = {},
                  .host = {},
                  .message = {}};
  const auto begin = io.now();
  const RunFiles before = io.files(run);
  const AttemptEnd end = end_of(io, io.start(training.words), {training.by_mpirun, static_cast<double>(options.frozen_after)});
  attempt.seconds = std::chrono::duration<double>(io.now() - begin).count();
  return judge_attempt(attempt, end, before, io.files(run));
}

}  // namespace

ExitCode supervise(const SuperviseIo& io, const SuperviseOptions& options, const LaunchedTraining& training,
                   const RunConfig& config) {
  const std::string run = config.train.directory();
  HostChoice choice(io, options, training, config);
  std::vector<Attempt> attempts;
  for (;;) {
    if (const std::optional<ExitCode> end = fetch_if_empty(io, options.fetch, run)) return *end;
    const bool has_own = std::ranges::any_of(attempts, &Attempt::made_progress);
    attempts.push_back(run_once(io, has_own ? choice.next().from_newest() : choice.next(), options, run, attempts.size()));
    const Attempt& last = attempts.back();
    io.record(run, last);
    const Next next = next_after(attempts, options.max_restarts);
    if (next.kind == Next::Kind::done || next.kind == Next::Kind::stopped) return static_cast<ExitCode>(last.code);
    if (io.stop_signal() != 0 || last.asked) return static_cast<ExitCode>(code_when_stopped(last));
    io.say("supervise: " + describe(last));
    if (next.kind == Next::Kind::give_up) {
      io.say("supervise: gave up: " + next.why);
      return static_cast<ExitCode>(last.code);
    }
    choice.after(attempts, next.fewer);
    for (const auto begin = io.now(); io.stop_signal() == 0 && io.now() - begin < std::chrono::duration<double>(next.delay);)
      io.sleep(kPoll);
    if (io.stop_signal() != 0) return ExitCode::stopped;
    io.say("supervise: attempt " + std::to_string(attempts.size() + 1) + " continues from " +
           (last.last_checkpoint >= 0 ? "step " + std::to_string(last.last_checkpoint) : "the beginning"));
  }
}

ExitCode run_supervise(const SuperviseOptions& options) {
  watch_signals();
  // When one rank has died, Open MPI would give the others a second to end by themselves, and wait for another: what they have to
  // say is on disk.
  set_environment_default("OMPI_MCA_odls_base_sigkill_timeout", "0");
  const LaunchedTraining training = take_apart(options.command);
  std::list<OutputRelay> relays;
  SuperviseIo io(relays);
  if (options.exclude_bad) io.hosts = [&] { return find_hosts(training, options.hostfile); };
  const ExitCode end = supervise(io, options, training, read_config(training.config, training.set));
  note_passed_on(static_cast<int>(end));
  return end;
}

}  // namespace trireme
