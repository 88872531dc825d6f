#include "train/run/launched_training.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text_stream.h"

namespace trireme {
namespace {

std::optional<int64_t> whole_number(const std::string& word) {
  int64_t value = 0;
  const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  return status == std::errc() && stop == word.data() + word.size() && value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

bool is_mpirun(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  return name == "mpirun" || name == "mpiexec" || name == "orterun" || name == "prterun";
}

LaunchedTraining LaunchedTraining::with(int64_t other_ranks, const std::string& settings) const {
  LaunchedTraining other = *this;
  other.ranks = other_ranks;
  if (ranks_at) {
    std::string& word = other.words[*ranks_at];
    const size_t equals = word.find('=');
    word = (equals == std::string::npos ? "" : word.substr(0, equals + 1)) + std::to_string(other_ranks);
  }
  TextReader in(settings);
  for (std::string word; in >> word;) other.words.push_back(word);
  return other;
}

LaunchedTraining LaunchedTraining::from_newest() const {
  LaunchedTraining other = *this;
  auto at = std::find(other.words.begin(), other.words.end(), "train");
  while (at != other.words.end()) {
    if (*at == "--resume" && at + 1 != other.words.end())
      at = other.words.erase(at, at + 2);
    else
      at = at->starts_with("--resume=") ? other.words.erase(at) : at + 1;
  }
  return other;
}

LaunchedTraining take_apart(const std::vector<std::string>& command) {
  LaunchedTraining training{.words = command, .config = {}, .set = {}, .ranks_at = {}};
  const auto train = std::find(command.begin(), command.end(), "train");
  if (command.empty() || train == command.begin() || train == command.end())
    throw ConfigError("supervise: the command starts no training: trireme supervise -- mpirun -n 8 trireme train config.yaml");
  training.by_mpirun = is_mpirun(command[0]);
  const auto before = static_cast<size_t>(train - command.begin());
  for (size_t i = 1; i < before; ++i) {
    const std::string &word = command[i], name = word.substr(0, word.find('='));
    if (name != "-n" && name != "-np" && name != "--np" && name != "--n" && name != "--ntasks") continue;
    const size_t at = name == word ? i + 1 : i;
    const std::optional<int64_t> ranks = whole_number(name == word ? command[at] : word.substr(name.size() + 1));
    if (ranks) training.ranks = *ranks, training.ranks_at = at;
  }
  for (size_t i = before + 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const bool takes_next = (word == "--set" || word == "--resume") && i + 1 < command.size();
    if (word.starts_with("--set"))
      training.set.push_back(takes_next ? command[i + 1] : word.substr(std::min<size_t>(6, word.size())));
    else if (!word.starts_with('-') && training.config.empty())
      training.config = word;
    i += takes_next;
  }
  if (training.config.empty()) throw ConfigError("supervise: 'train' is given no config");
  return training;
}

}  // namespace trireme
