#include "train/health/hang_board.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/replace_file.h"
#include "base/text_stream.h"
#include "checkpoint/problem.h"
#include "checkpoint/removal.h"

namespace trireme {
namespace {

constexpr auto kFormat = "trireme hang 4";
constexpr auto kRuling = "ruling", kRulingFormat = "trireme ruling 2";
constexpr size_t kMost = 4096;  // limit for the counts in a text

template <size_t kSize>
void put(std::array<char, kSize>& to, const std::string& word) {
  to.fill('\0');
  std::copy_n(word.data(), std::min(word.size(), kSize - 1), to.data());
}

// Encodes a name as one word: the axis "tp part" becomes "tp~part".
std::string as_word(std::string name) {
  std::ranges::replace(name, ' ', '~');
  return name.empty() ? "-" : name;
}
std::string as_name(std::string word) {
  std::ranges::replace(word, '~', ' ');
  return word == "-" ? "" : word;
}

}  // namespace

HangBoard::HangBoard(std::string directory, int64_t node, int64_t nodes)
    : directory_(std::move(directory)), node_(node), nodes_(nodes) {}

std::string HangBoard::path(int64_t node) const { return directory_ + "/node-" + std::to_string(node); }

void HangBoard::report(const std::vector<RankReport>& ranks) const {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  replace_file(path(node_), to_text(ranks));
}

void HangBoard::take_back() const {
  std::error_code error;
  std::filesystem::remove(path(node_), error);
  std::filesystem::remove(directory_, error);  // fails unless it is empty
}

std::vector<std::vector<RankReport>> HangBoard::read() const {
  std::vector<std::vector<RankReport>> told;
  for (int64_t node = 0; node < nodes_; ++node) told.push_back(reports_in(text_of_file(path(node))));
  return told;
}

HangBoard::Sign HangBoard::first_report(int64_t node) const {
  struct stat facts;
  for (; node < nodes_; ++node)
    if (stat(path(node).c_str(), &facts) == 0)
      return {.node = node, .time = facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec};
  return {};
}

void HangBoard::rule(const BoardRuling& ruling) const {
  const Verdict& v = ruling.verdict;
  const std::string words = text(kRulingFormat, ' ', ruling.speaker, ' ', v.rank, ' ', v.thread, ' ', v.awaited ? 1 : 0, ' ',
                                 v.shared ? 1 : 0, '\n', v.host, '\n', v.line, '\n');
  replace_file(directory_ + "/" + kRuling, words);
}

std::optional<BoardRuling> HangBoard::ruling() const {
  TextReader in(text_of_file(directory_ + "/" + kRuling));
  std::string format(std::char_traits<char>::length(kRulingFormat), ' ');
  BoardRuling ruling;
  Verdict& v = ruling.verdict;
  if (!in.read(format.data(), static_cast<std::streamsize>(format.size())) || format != kRulingFormat ||
      !(in >> ruling.speaker >> v.rank >> v.thread >> v.awaited >> v.shared) || in.get() != '\n' || !std::getline(in, v.host) ||
      !std::getline(in, v.line))
    return std::nullopt;
  return ruling;
}

std::vector<std::string> sweep_hang_boards(const std::string& run_directory, const std::string& keep) {
  const Io io;
  std::vector<std::string> problems;
  const auto of_a_board = [](const std::string& name) { return name.starts_with("node-") || name.starts_with(kRuling); };
  problem_of([&] {
    for (const std::string& name : names_in(io, run_directory)) {
      const std::string board = run_directory + "/" + name;
      if (name.starts_with("hang-") && board != keep)
        if (const std::string problem = problem_of([&] { remove_directory(io, board, "", of_a_board); }); !problem.empty())
          problems.push_back("cannot remove what an earlier process left: " + problem);
    }
  });
  return problems;
}

std::string to_text(const std::vector<RankReport>& ranks) {
  TextWriter out;
  out << kFormat << ' ' << ranks.size() << '\n';
  for (const RankReport& r : ranks) {
    out << r.rank << ' ' << r.process << ' ' << (r.host.empty() ? "?" : r.host) << ' ' << r.state << ' ' << r.step << ' ' << r.part
        << ' ' << r.silent << ' ' << r.waits_for_gpu << ' ' << r.share.counted << ' ' << r.share.unserved << ' ' << r.share.used
        << ' ' << r.share.computes << ' ' << r.entries.size() << ' ' << r.entered.size() << ' ' << r.on_gpu.size() << ' ' << r.doing
        << '\n';
    for (const JournalEntry& e : r.entries)
      out << as_word(e.what.data()) << ' ' << as_word(e.along.data()) << ' ' << e.group.first << ' ' << e.group.stride << ' '
          << e.group.count << ' ' << e.peer << ' ' << e.number << ' ' << e.bytes << ' ' << e.since << ' ' << e.thread << ' '
          << e.inside << ' ' << e.hosts << '\n';
    for (const auto& [key, count] : r.entered) out << key << ' ' << count << '\n';
    for (const GpuWaits& w : r.on_gpu)
      out << as_word(w.along.data()) << ' ' << w.group.first << ' ' << w.group.stride << ' ' << w.group.count << ' ' << w.entered
          << '\n';
  }
  out << "end\n";
  return out.str();
}

std::vector<RankReport> reports_in(const std::string& text) {
  TextReader in(text);
  std::string format(std::char_traits<char>::length(kFormat), ' '), word, along;
  size_t ranks = 0;
  if (!in.read(format.data(), static_cast<std::streamsize>(format.size())) || format != kFormat || !(in >> ranks) || ranks > kMost)
    return {};
  std::vector<RankReport> reports(ranks);
  for (RankReport& r : reports) {
    size_t entries = 0, entered = 0, on_gpu = 0;
    if (!(in >> r.rank >> r.process >> r.host >> r.state >> r.step >> r.part >> r.silent >> r.waits_for_gpu >> r.share.counted >>
          r.share.unserved >> r.share.used >> r.share.computes >> entries >> entered >> on_gpu) ||
        entries > kMost || entered > kMost || on_gpu > kMost)
      return {};
    in.ignore(1);
    std::getline(in, r.doing);
    r.entries.resize(entries);
    for (JournalEntry& e : r.entries) {
      in >> word >> along >> e.group.first >> e.group.stride >> e.group.count >> e.peer >> e.number >> e.bytes >> e.since >>
          e.thread >> e.inside >> e.hosts;
      put(e.what, as_name(word)), put(e.along, as_name(along));
    }
    for (size_t i = 0; i < entered; ++i) {
      uint64_t key = 0;
      in >> key >> r.entered[key];
    }
    r.on_gpu.resize(on_gpu);
    for (GpuWaits& w : r.on_gpu) {
      in >> along >> w.group.first >> w.group.stride >> w.group.count >> w.entered;
      put(w.along, as_name(along));
    }
  }
  return in >> word && word == "end" ? reports : std::vector<RankReport>{};
}

}  // namespace trireme
