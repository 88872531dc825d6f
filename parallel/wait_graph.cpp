#include "parallel/wait_graph.h"

#include <algorithm>
#include <optional>

namespace trireme {

WaitGraph::WaitGraph(const std::vector<RankReport>& ranks) : ranks_(ranks), waits_(ranks.size()), waiting_(ranks.size(), 0) {
  for (size_t i = 0; i < ranks.size(); ++i) places_[ranks[i].rank] = i;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const JournalEntry& entry : ranks[i].entries) {
      if (entry.inside == 0) continue;
      if (entry.peer >= 0) {
        if (!meets(i, entry)) add_message(i, entry.peer);
        continue;
      }
      const uint64_t key = group_key(entry.along.data(), entry.group, entry.hosts != 0);
      const auto entered = [key](const RankReport& r) {
        const auto count = r.entered.find(key);
        return std::optional(count == r.entered.end() ? int64_t{-1} : count->second);
      };
      add(i, group_of(groups_[key], entry.group, entered), entry.number, nullptr);
    }
    if (!ranks[i].waits_for_gpu) continue;
    for (const GpuWaits& waits : ranks[i].on_gpu) {
      const auto entered = [&waits](const RankReport& r) -> std::optional<int64_t> {
        for (const GpuWaits& theirs : r.on_gpu)
          if (theirs.along == waits.along && theirs.group == waits.group) return theirs.entered;
        return std::nullopt;  // its GPU may have entered any number
      };
      add(i, group_of(gpu_groups_[group_key(waits.along.data(), waits.group)], waits.group, entered), waits.entered, &waits);
    }
  }
  for (const auto* groups : {&groups_, &gpu_groups_})
    for (const auto& [key, group] : *groups) {
      int64_t waiting = 0;
      for (size_t p = group.members.size(); p-- > 0;) waiting_[group.members[p].second] += waiting += group.waiting[p + 1];
    }
}

size_t WaitGraph::Group::missing_before(int64_t number) const {
  return static_cast<size_t>(std::ranges::lower_bound(members, std::pair{number, size_t{0}}) - members.begin());
}

template <class Entered>
WaitGraph::Group& WaitGraph::group_of(Group& group, const GroupRanks& ranks, Entered entered) {
  if (!group.waiting.empty()) return group;  // filled already
  for (int64_t m = 0; m < ranks.count; ++m) {
    const auto at = places_.find(ranks.member(m));
    if (at == places_.end())
      beyond_ = true;
    else if (const std::optional<int64_t> number = entered(ranks_[at->second]))
      group.members.emplace_back(*number, at->second);
  }
  std::ranges::sort(group.members);
  group.waiting.assign(group.members.size() + 1, 0);
  for (size_t p = 0; p < group.members.size(); ++p) group.positions[group.members[p].second] = p;
  return group;
}

void WaitGraph::add(size_t i, Group& group, int64_t number, const GpuWaits* on_gpu) {
  const Wait wait{.group = &group, .missing = group.missing_before(number), .on_gpu = on_gpu};
  const bool itself = lacks(wait, i);  // its report was written meanwhile
  if (wait.missing == (itself ? 1 : 0)) return;
  ++group.waiting[wait.missing];
  if (itself) --waiting_[i];
  waits_[i].push_back(wait);
}

void WaitGraph::add_message(size_t i, int64_t peer) {
  const auto at = places_.find(peer);
  if (at == places_.end()) {
    beyond_ = true;
  } else if (at->second != i) {
    waits_[i].push_back({.peer = at->second});
    ++waiting_[at->second];
  }
}

// True if the other end of a message has reached it.
bool WaitGraph::meets(size_t i, const JournalEntry& message) const {
  const auto at = places_.find(message.peer);
  if (at == places_.end()) return false;
  return std::ranges::any_of(ranks_[at->second].entries, [&](const JournalEntry& theirs) {
    return theirs.inside != 0 && theirs.peer == ranks_[i].rank && theirs.what != message.what;
  });
}

bool WaitGraph::lacks(const Wait& wait, size_t other) {
  if (wait.group == nullptr) return wait.peer == other;
  const auto at = wait.group->positions.find(other);
  return at != wait.group->positions.end() && at->second < wait.missing;
}

bool WaitGraph::waits(size_t i) const { return !waits_[i].empty(); }

bool WaitGraph::waits_for(size_t i, size_t other) const {
  return i != other && std::ranges::any_of(waits_[i], [&](const Wait& wait) { return lacks(wait, other); });
}

WaitGraph::OnGpu WaitGraph::on_gpu(size_t i, size_t other) const {
  for (const Wait& wait : waits_[i]) {
    if (!lacks(wait, other)) continue;
    if (wait.on_gpu == nullptr) return {};
    return {.waits = wait.on_gpu, .other = wait.group->members[wait.group->positions.at(other)].first};
  }
  return {};
}

}  // namespace trireme
