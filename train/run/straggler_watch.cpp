#include "train/run/straggler_watch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <vector>

#include "parallel/host_collectives.h"
#include "train/health/core_rate.h"

namespace trireme {
namespace {

constexpr double kWiderLimit = 2;      // where ranks share cores, so much of the usual excess is noise of caches
constexpr int64_t kFirstSteps = 2;     // of a process: they take memory and make the kernels' caches warm
constexpr int64_t kSharedWindows = 2;  // in a row that name the same rank, before it is reported, where ranks share cores
constexpr int64_t kWindowsToEnd = 3;   // in a row that name the same rank, before it ends the run
constexpr auto kWindowSteps = static_cast<int64_t>(RankWork::kSteps);
constexpr double kSecondsToEnd = 10;  // at least, since the first of them

WorkPart work_part(std::string_view name) {
  constexpr std::array<std::string_view, kWorkParts - 1> names{"forward", "backward", "optimizer", "data"};
  return static_cast<WorkPart>(std::ranges::find(names, name) - names.begin());
}

std::string bytes_of(const RankWork& work) {
  static_assert(std::is_trivially_copyable_v<RankWork>);
  std::string bytes(sizeof work, '\0');
  std::memcpy(bytes.data(), &work, sizeof work);
  return bytes;
}

RankWork work_in(const std::string& bytes) {
  RankWork work;
  require(bytes.size() == sizeof work, text("a rank's work has ", bytes.size(), " bytes, not ", sizeof work));
  std::memcpy(&work, bytes.data(), sizeof work);
  return work;
}

}  // namespace

StragglerWatch::StragglerWatch(Session& session)
    : session_(session),
      active_(session.config.train.straggler_ratio > 0 && session.run.mesh.all().size() > 1 &&
              session.run.device.place() == Place::cpu) {}

void StragglerWatch::step_ended(bool comparable) {
  if (!active_ || ++steps_ <= kFirstSteps || !comparable || due()) return;
  PartClock& clock = session_.run.device.clock();
  double seconds = 0, data = 0;
  for (const PartClock::Part& part : clock.parts()) {
    if (part.waits) continue;
    const WorkPart work = work_part(part.name.data());
    seconds += part.seconds;
    if (work == WorkPart::data) data += part.seconds;
    window_.parts[static_cast<size_t>(work)] += static_cast<float>(part.seconds);
  }
  const double on_core = std::min(clock.on_core(), seconds);
  window_.seconds += static_cast<float>(seconds), window_.on_core += static_cast<float>(on_core);
  // On shared cores, time without one says nothing of the rank, but a wait for data does. Two readers work side by side, so that a
  // slow disk holds up every second step.
  const double read = std::exchange(data_before_, data);
  const double computed = seconds - data, work = session_.shares_cores ? std::min(on_core, computed) : computed;
  window_.busy[filled_++] = static_cast<float>(work + (data + read) / 2);
  core_rates_ += core_rate();
}

RankWork StragglerWatch::take() {
  RankWork work = std::exchange(window_, {});
  work.stage = session_.run.mesh.pp().rank();
  host_name().copy(work.host.data(), work.host.size() - 1);
  work.shares_cores = session_.shares_cores ? 1 : 0;
  work.machine = machine_.take();
  work.machine.core_rate = static_cast<float>(std::exchange(core_rates_, 0) / static_cast<double>(std::exchange(filled_, 0)));
  const std::vector<LinkTime> links = session_.journal.links().take();
  work.links = static_cast<int32_t>(links.size());
  std::ranges::copy(links, work.link.begin());
  return work;
}

void StragglerWatch::judge(int64_t step) {
  const Doing doing(session_.journal, "comparing the ranks' work");
  std::vector<RankWork> ranks;
  for (const std::string& bytes : gather(session_.run.mesh.all(), bytes_of(take()))) ranks.push_back(work_in(bytes));
  if (session_.log) say(step, ranks);
}

void StragglerWatch::say(int64_t step, std::span<const RankWork> ranks) {
  const std::vector<double> ratios = relative_work(ranks);
  const auto slowest = std::ranges::max_element(ratios);
  BusyRecord record{.step = step, .slowest = slowest - ratios.begin(), .ratio = *slowest};
  for (const double seconds : median_work(ranks)) record.ms.push_back(seconds * 1e3);
  session_.log->busy_ranks(record);
  const double excess = (session_.config.train.straggler_ratio - 1) * (session_.shares_cores ? kWiderLimit : 1);
  follow(find_straggler(ranks, 1 + excess), step);
  for (const std::string& line : slow_links(ranks))
    if (slow_links_.insert(line.substr(0, line.find(':'))).second)
      session_.log->event({.step = step, .event = "slow_link", .since = step}, "warning: " + line);
}

void StragglerWatch::follow(const std::optional<Straggler>& found, int64_t step) {
  const int64_t rank = found ? found->rank : -1;
  if (rank != suspect_) suspect_ = rank, times_ = 0, since_ = Clock::now(), first_step_ = step - kWindowSteps + 1;
  ++times_;
  const int64_t named = times_ < (session_.shares_cores ? kSharedWindows : 1) ? -1 : rank;
  if (named_ >= 0 && !found) session_.note("rank " + std::to_string(named_) + " is no longer slower than its peers");
  const bool is_news = named != std::exchange(named_, named);
  if (named < 0) return;
  words_ = found->words, host_ = found->host;
  if (is_news) {
    EventRecord event{.step = step, .event = "straggler", .since = first_step_};
    event.rank = rank, event.host = host_, event.text = words_;
    session_.log->event(event, "warning: " + words_);
  }
  const bool stops = session_.config.train.on_straggler == OnStraggler::stop;
  if (stops && times_ >= kWindowsToEnd && seconds_since(since_) >= kSecondsToEnd) end_for_ = rank + 1;
}

void StragglerWatch::end_run(int64_t rank, int64_t step) const {
  const Comm& all = session_.run.mesh.all();
  const std::string words = broadcast(all, words_), host = broadcast(all, host_);
  throw MachineError(words + ". Stopped after step " + std::to_string(step) +
                         ", which is saved, as train.on_straggler = stop says. Start again without that machine",
                     host, rank);
}

}  // namespace trireme
