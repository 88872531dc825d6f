// HangBoard: where the nodes of a run tell each other what their ranks do when they get on no more: files in the run's directory,
// which all nodes share. No rank has to answer another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

class HangBoard {
 public:
  // On every rank of node `node` of `nodes`: `directory` is of this start of the run alone, and need not be there.
  HangBoard(std::string directory, int64_t node, int64_t nodes);

  const std::string& directory() const { return directory_; }
  int64_t node() const { return node_; }

  void report(const std::vector<RankReport>& ranks) const;  // of this node; what cannot be written is not told
  void take_back() const;                                   // they got on
  // What the nodes have told, by node; of a node that has told nothing no ranks.
  std::vector<std::vector<RankReport>> read() const;

 private:
  std::string path(int64_t node) const;
  std::string directory_;
  int64_t node_, nodes_;
};

// What earlier starts have left in a run's directory, which is ours.
void sweep_hang_boards(const std::string& run_directory, const std::string& keep);

// Reports as text, and back; what is no such text gives none.
std::string to_text(const std::vector<RankReport>& ranks);
std::vector<RankReport> reports_in(const std::string& text);

}  // namespace trireme
