// NodeReports: one node's part in a verdict of several nodes. Each node reports its ranks on the
// board. The first node that has done so leads: it alone reads all reports, and what it rules ends the others.
// So a round of N nodes opens about 3 N files, and not N squared.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "parallel/journal.h"
#include "parallel/verdict.h"
#include "train/health/hang_board.h"

namespace trireme {

class NodeReports {
 public:
  // `board`: nullptr on one node. `stale`: seconds, at least, after which a node whose report stays the same no longer leads.
  explicit NodeReports(const HangBoard* board, double stale = 10) : board_(board), stale_(stale) {}

  // Reports this node's ranks, again every second, and reads what this node needs. `limit`: seconds that make a hang.
  void exchange(const std::vector<RankReport>& own, double limit);
  void take_back();  // ranks make progress again

  // After exchange():
  bool leads() const { return leads_; }
  bool complete() const;                 // each node has reported; false on a node that does not lead
  std::vector<RankReport> all() const;   // of all nodes that have
  std::optional<Verdict> ruled() const;  // by the node that leads, if that is another
  void rule(Verdict& verdict);           // on a node that leads: names silent nodes, and lets the others end
  bool reports() const;                  // this node shows the ruling to the user
  bool several() const { return board_ != nullptr; }

 private:
  bool another_leads(double limit);
  int64_t speaker_for(int64_t culprit) const;

  const HangBoard* board_;
  const double stale_;
  bool leads_ = true;
  std::optional<Clock::time_point> told_;       // this node's report is on the board, since then
  std::vector<std::vector<RankReport>> nodes_;  // reports by node, on one that leads
  std::optional<BoardRuling> ruling_;
  struct Seen {
    int64_t time = 0;         // of the node's report
    Clock::time_point since;  // when that was first seen
  };
  std::map<int64_t, Seen> seen_;  // by node, of those before this one
};

}  // namespace trireme
