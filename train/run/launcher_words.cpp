#include "train/run/launcher_words.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text_stream.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

std::optional<int64_t> number_at_start(std::string_view text) {
  int64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::string joined(const Words& words, size_t from, size_t to) {
  std::string text;
  for (size_t i = from; i < std::min(to, words.size()); ++i) text += (text.empty() ? "" : " ") + words[i];
  return text;
}

bool says(const Words& words, size_t at, const Words& expected) {
  return at + expected.size() <= words.size() &&
         std::equal(expected.begin(), expected.end(), words.begin() + static_cast<std::ptrdiff_t>(at),
                    [](const std::string& wanted, const std::string& word) { return wanted.empty() || wanted == word; });
}

// Open MPI: "mpirun noticed that process rank 2 with PID 4711 on node n1 exited on signal 9 (Killed)."
std::optional<LostRank> by_signal(const Words& w, size_t i) {
  if (!says(w, i, {"process", "rank", "", "with", "PID", "", "on", "node", "", "exited", "on", "signal", ""})) return std::nullopt;
  const std::optional<int64_t> rank = number_at_start(w[i + 2]);
  if (!rank) return std::nullopt;
  const bool named = i + 13 < w.size() && w[i + 13].starts_with('(');
  return LostRank{.rank = *rank, .host = w[i + 8], .words = joined(w, i, i + (named ? 14 : 13))};
}

// Open MPI, of the first rank that failed: "Process name: [[51234,1],2]" or "[prterun-n1-4711@1,2]", and "Exit code: 70".
std::optional<LostRank> by_code(const Words& w, size_t i) {
  if (!says(w, i, {"Process", "name:", "", "Exit", "code:", ""})) return std::nullopt;
  const std::optional<int64_t> rank = number_at_start(std::string_view(w[i + 2]).substr(w[i + 2].rfind(',') + 1));
  if (!rank) return std::nullopt;
  return LostRank{.rank = *rank, .words = "process rank " + std::to_string(*rank) + " exited with code " + w[i + 5]};
}

// Slurm: "srun: error: n1: task 2: Killed"; of several tasks, "tasks 0,2-3:", the first.
std::optional<LostRank> by_srun(const Words& w, size_t i) {
  if (!says(w, i, {"srun:", "error:", "", "", "", ""}) || (w[i + 3] != "task" && w[i + 3] != "tasks")) return std::nullopt;
  const std::optional<int64_t> rank = number_at_start(w[i + 4]);
  if (!rank || !w[i + 2].ends_with(':')) return std::nullopt;
  const size_t end = w[i + 5] == "Exited" ? i + 10 : w[i + 5] == "Segmentation" ? i + 7 : i + 6;
  return LostRank{.rank = *rank, .host = w[i + 2].substr(0, w[i + 2].size() - 1), .words = joined(w, i + 3, end)};
}

// Open MPI: "ORTE has lost communication with a remote daemon. ... Remote daemon: [[51234,0],1] on node n2".
std::optional<LostRank> by_daemon(const Words& w, size_t i) {
  if (!says(w, i, {"Remote", "daemon:", "", "on", "node", ""})) return std::nullopt;
  return LostRank{.host = w[i + 5], .words = "lost communication with node " + w[i + 5], .cause = kNodeLost};
}

// Slurm: "srun: error: Node failure on n2".
std::optional<LostRank> by_node_failure(const Words& w, size_t i) {
  if (!says(w, i, {"srun:", "error:", "Node", "failure", "on", ""})) return std::nullopt;
  return LostRank{.host = w[i + 5], .words = joined(w, i + 2, i + 6), .cause = kNodeLost};
}

// OpenSSH, of a host that mpirun wanted: "ssh: connect to host n2 port 22: No route to host".
std::optional<LostRank> by_ssh(const Words& w, size_t i) {
  if (!says(w, i, {"ssh:", "connect", "to", "host", "", "port", ""})) return std::nullopt;
  return LostRank{.host = w[i + 4], .words = joined(w, i, i + 7), .cause = kUnreachable};
}

}  // namespace

std::optional<LostRank> lost_rank(std::string_view output) {
  TextReader in{std::string(output)};
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  for (size_t i = 0; i < words.size(); ++i)
    for (const auto find : {by_signal, by_code, by_srun, by_daemon, by_node_failure, by_ssh})
      if (std::optional<LostRank> lost = find(words, i)) return lost;
  return std::nullopt;
}

}  // namespace trireme
