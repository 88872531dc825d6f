// HangBoard: files in the run's directory, through which nodes exchange reports on ranks that make no
// progress. All nodes share the directory, and no rank has to answer another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/journal.h"
#include "parallel/verdict.h"

namespace trireme {

// A verdict on all nodes' ranks.
struct BoardRuling {
  Verdict verdict;
  int64_t speaker = -1;  // the node that reports it to the user
};

class HangBoard {
 public:
  // For every rank of node `node`, of `nodes` nodes. Each start of the run has its own `directory`, which
  // need not exist yet.
  HangBoard(std::string directory, int64_t node, int64_t nodes);

  const std::string& directory() const { return directory_; }
  int64_t node() const { return node_; }

  void report(const std::vector<RankReport>& ranks) const;  // of this node; failed writes are ignored
  void take_back() const;                                   // deletes the report: ranks make progress again
  // Returns the reports by node; empty for a node that has reported nothing.
  std::vector<std::vector<RankReport>> read() const;
  // The first node from `node` on that has reported, and when by its own clock; node -1: none.
  struct Sign {
    int64_t node = -1, time = 0;
    bool operator==(const Sign&) const = default;
  };
  Sign first_report(int64_t node) const;

  void rule(const BoardRuling& ruling) const;  // for all other nodes; a failed write is ignored
  std::optional<BoardRuling> ruling() const;

 private:
  std::string path(int64_t node) const;
  std::string directory_;
  int64_t node_, nodes_;
};

// Deletes the boards that earlier starts left in a run's directory, except `keep`. Returns a line for each that remains.
std::vector<std::string> sweep_hang_boards(const std::string& run_directory, const std::string& keep);

// Writes reports as text, and reads them back; returns none if the text is damaged or incomplete.
std::string to_text(const std::vector<RankReport>& ranks);
std::vector<RankReport> reports_in(const std::string& text);

}  // namespace trireme
