#include "train/health/node_reports.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr double kTellAgain = 1;  // seconds between reports on the board

bool can_speak(const std::vector<RankReport>& node) { return !std::ranges::all_of(node, stopped_or_gone); }

}  // namespace

void NodeReports::exchange(const std::vector<RankReport>& own, double limit) {
  if (board_ == nullptr) {
    nodes_ = {own};
    return;
  }
  if (!told_ || seconds_since(*told_) >= kTellAgain) {
    board_->report(own);
    told_ = Clock::now();
  }
  leads_ = !another_leads(limit);
  ruling_ = leads_ ? std::nullopt : board_->ruling();
  nodes_ = leads_ ? board_->read() : std::vector<std::vector<RankReport>>{};
}

// A node whose report has stayed the same is frozen or lost: the next one leads. Clocks of nodes differ, so its age does not count.
bool NodeReports::another_leads(double limit) {
  for (HangBoard::Sign sign = board_->first_report(0); sign.node >= 0 && sign.node < board_->node();
       sign = board_->first_report(sign.node + 1)) {
    Seen& seen = seen_[sign.node];
    if (seen.time != sign.time) seen = {.time = sign.time, .since = Clock::now()};
    if (seconds_since(seen.since) < std::max(stale_, 2 * limit)) return true;
  }
  return false;
}

void NodeReports::take_back() {
  nodes_.clear();
  if (std::exchange(told_, std::nullopt)) board_->take_back();
}

bool NodeReports::complete() const {
  return leads_ && std::ranges::none_of(nodes_, [](const auto& node) { return node.empty(); });
}

std::vector<RankReport> NodeReports::all() const {
  std::vector<RankReport> all;
  for (const auto& node : nodes_) all.insert(all.end(), node.begin(), node.end());
  return all;
}

std::optional<Verdict> NodeReports::ruled() const { return ruling_ ? std::optional(ruling_->verdict) : std::nullopt; }

void NodeReports::rule(Verdict& verdict) {
  if (board_ == nullptr) return;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].empty()) continue;
    verdict.line += text("; node ", node, " has reported nothing");
    verdict.host.clear();  // the fault may be there
  }
  ruling_ = BoardRuling{.verdict = verdict, .speaker = speaker_for(verdict.rank)};
  board_->rule(*ruling_);
}

// Among nodes with a report, the culprit's, which can read its stack; otherwise the first.
int64_t NodeReports::speaker_for(int64_t culprit) const {
  const auto has_it = [&](const auto& node) {
    return can_speak(node) && std::any_of(node.begin(), node.end(), [&](const RankReport& r) { return r.rank == culprit; });
  };
  auto speaker = std::find_if(nodes_.begin(), nodes_.end(), has_it);
  if (speaker == nodes_.end()) speaker = std::find_if(nodes_.begin(), nodes_.end(), can_speak);
  return speaker == nodes_.end() ? board_->node() : speaker - nodes_.begin();
}

bool NodeReports::reports() const { return board_ == nullptr || !ruling_ || ruling_->speaker == board_->node(); }

}  // namespace trireme
