#include "train/run/launch_hosts.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "parallel/world.h"

namespace trireme {
namespace {

constexpr int64_t kMostHosts = 100'000;
constexpr int64_t kMostText = 16 << 20;
const std::vector<std::string> kHostfileWords{"--hostfile", "-hostfile", "--machinefile", "-machinefile"};
const std::vector<std::string> kHostWords{"--host", "-host", "-H"};

int64_t whole_count(std::string_view digits, const std::string& where) {
  int64_t value = -1;
  const auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || stop != digits.data() + digits.size() || value < 0)
    throw ConfigError(text("supervise --exclude-bad: ", where, ": '", digits, "' is not a number"));
  return value;
}

std::vector<std::string> split_outside_brackets(const std::string& list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  std::erase(parts, "");
  return parts;
}

// Numbers of "01-03,7", with their leading zeros.
std::vector<std::string> numbers_of(const std::string& ranges) {
  std::vector<std::string> numbers;
  for (const std::string& range : split_outside_brackets(ranges)) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    const int64_t end = whole_count(last, "SLURM_JOB_NODELIST");
    for (int64_t i = whole_count(first, "SLURM_JOB_NODELIST"); i <= end && std::ssize(numbers) < kMostHosts; ++i) {
      const std::string digits = std::to_string(i);
      numbers.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') + digits);
    }
  }
  return numbers;
}

std::vector<std::string> names_of(const std::string& item) {
  const size_t open = item.find('['), close = item.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return {item};
  std::vector<std::string> names;
  for (const std::string& number : numbers_of(item.substr(open + 1, close - open - 1)))
    for (const std::string& rest : names_of(item.substr(close + 1))) names.push_back(item.substr(0, open) + number + rest);
  return names;
}

std::set<std::string> addresses_of(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::set<std::string> found;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::string name(NI_MAXHOST, '\0');
    if (getnameinfo(one->ai_addr, one->ai_addrlen, name.data(), NI_MAXHOST, nullptr, 0, NI_NUMERICHOST) == 0)
      found.insert(name.substr(0, name.find('\0')));
  }
  freeaddrinfo(list);
  return found;
}

std::string listed_name(const LaunchHost& host) { return host.name == "localhost" ? host_name() : host.name; }

// A value of one of these options among the launcher's own words: its word, and where it begins in it.
struct OptionAt {
  size_t word, begin;
};
// Options of srun have one value at most, so its own end where a word is neither; those of mpirun may have two.
std::optional<OptionAt> option_at(const LaunchedTraining& training, const std::vector<std::string>& names) {
  const std::vector<std::string>& words = training.words;
  for (size_t i = 1; i + 1 < words.size() && words[i] != "train"; ++i) {
    const bool option = words[i].starts_with('-');
    if (!option && !training.by_mpirun) break;
    const size_t equals = words[i].find('=');
    if (option && std::ranges::count(names, words[i].substr(0, equals)) > 0)
      return equals != std::string::npos ? OptionAt{i, equals + 1} : OptionAt{i + 1, 0};
    if (option && equals == std::string::npos && !words[i + 1].starts_with('-')) ++i;  // its value
  }
  return std::nullopt;
}

std::string value_at(const LaunchedTraining& training, const OptionAt& at) { return training.words[at.word].substr(at.begin); }

void insert_option(LaunchedTraining& training, const std::vector<std::string>& option) {
  training.words.insert(training.words.begin() + 1, option.begin(), option.end());
  if (training.ranks_at) *training.ranks_at += option.size();
}

// Gives an option this value, in its place or as the launcher's first.
void set_option(LaunchedTraining& training, const std::vector<std::string>& names, const std::string& value) {
  if (const auto at = option_at(training, names)) {
    std::string& word = training.words[at->word];
    word = word.substr(0, at->begin) + value;
  } else if (training.by_mpirun) {
    insert_option(training, {names.front(), value});
  } else {
    insert_option(training, {names.front() + "=" + value});
  }
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

std::string hostfile_of(const LaunchedTraining& training, const std::string& asked) {
  if (!asked.empty()) return asked;
  if (const auto at = option_at(training, kHostfileWords)) return value_at(training, *at);
  for (const char* variable : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"})
    if (std::string file = environment(variable); !file.empty()) return file;
  return "";
}

}  // namespace

std::vector<LaunchHost> parse_hostfile(const std::string& content, const std::string& path) {
  std::vector<LaunchHost> hosts;
  TextReader lines(content);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = text(path, ":", ++number);
    TextReader words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    int64_t slots = 0;
    while (words >> word)
      for (const std::string_view key : {"slots=", "slot=", "count=", "cpu="})
        if (word.starts_with(key)) slots = whole_count(std::string_view(word).substr(key.size()), where);
    if (slots <= 0)
      throw ConfigError(text("supervise --exclude-bad: ", where, ": '", name, "' has no slots: write '", name,
                             " slots=4' for 4 ranks, so that it is known which hosts are spare"));
    const std::string host = name.substr(name.find('@') + 1);  // of USER@HOST
    const auto before = std::ranges::find(hosts, host, &LaunchHost::name);
    if (before == hosts.end())
      hosts.push_back({.name = host, .slots = slots, .line = line});
    else
      before->slots += slots, before->line += "\n" + line;
  }
  if (hosts.empty()) throw ConfigError("supervise --exclude-bad: " + path + " names no host: write a line 'HOST slots=N' for each");
  return hosts;
}

std::vector<LaunchHost> parse_allocation(const std::string& nodes, const std::string& tasks) {
  std::vector<LaunchHost> hosts;
  for (const std::string& item : split_outside_brackets(nodes))
    for (const std::string& name : names_of(item)) hosts.push_back({.name = name});
  size_t next = 0;
  for (const std::string& item : split_outside_brackets(tasks)) {  // "4(x3)" or "4"
    const size_t open = item.find("(x");
    const int64_t slots = whole_count(item.substr(0, open), "SLURM_TASKS_PER_NODE");
    int64_t times = 1;
    if (open != std::string::npos) times = whole_count(item.substr(open + 2, item.find(')') - open - 2), "SLURM_TASKS_PER_NODE");
    for (; times > 0 && next < hosts.size(); --times, ++next)
      hosts[next].slots = slots, hosts[next].line = hosts[next].name + " slots=" + std::to_string(slots);
  }
  if (hosts.empty() || next < hosts.size())
    throw ConfigError("supervise --exclude-bad: SLURM_JOB_NODELIST = '" + nodes + "' and SLURM_TASKS_PER_NODE = '" + tasks +
                      "' do not say how many ranks each node takes: give sbatch --nodes and --ntasks-per-node");
  return hosts;
}

LaunchHosts find_hosts(const LaunchedTraining& training, const std::string& hostfile) {
  const std::string launcher = training.words.front().substr(training.words.front().rfind('/') + 1);
  const bool by_srun = launcher == "srun";
  if (!training.by_mpirun && !by_srun)
    throw ConfigError("supervise --exclude-bad: '" + launcher + "' is neither mpirun nor srun: it cannot be given other hosts");
  if (!training.ranks_at)
    throw ConfigError("supervise --exclude-bad: the command does not say how many ranks it starts: add -n to " + launcher);
  const std::string nodes = environment("SLURM_JOB_NODELIST");
  if (by_srun && nodes.empty())
    throw ConfigError("supervise --exclude-bad: srun has no allocation: start supervise inside of sbatch or salloc");
  if (const auto at = by_srun ? std::nullopt : option_at(training, kHostWords))
    throw ConfigError("supervise --exclude-bad: mpirun is given its hosts by " + training.words[at->word] +
                      ": give them in a hostfile, by --hostfile");
  if (const std::string path = by_srun ? "" : hostfile_of(training, hostfile); !path.empty())
    return {.hosts = parse_hostfile(read_file(path, kMostText, "a hostfile"), path), .source = path};
  if (nodes.empty())
    throw ConfigError(
        "supervise --exclude-bad: no hosts are known: give a hostfile, by --hostfile, or start in a Slurm allocation");
  return {
      .hosts = parse_allocation(nodes, environment("SLURM_TASKS_PER_NODE")), .source = "Slurm's allocation", .by_srun = by_srun};
}

std::optional<size_t> find_host(const std::vector<LaunchHost>& hosts, const std::string& name) {
  const auto first_part = [](const std::string& host) { return host.substr(0, host.find('.')); };
  const auto index_if = [&](const auto& fits) -> std::optional<size_t> {
    const auto at = std::ranges::find_if(hosts, fits);
    return at == hosts.end() ? std::nullopt : std::optional<size_t>(at - hosts.begin());
  };
  if (const auto same = index_if([&](const LaunchHost& host) { return listed_name(host) == name; })) return same;
  const auto begins = [&](const LaunchHost& host) {
    const std::string listed = listed_name(host);
    return first_part(listed) == name || first_part(name) == listed;
  };
  if (const auto part = index_if(begins)) return part;
  const std::set<std::string> wanted = addresses_of(name);
  return index_if([&](const LaunchHost& host) {
    return std::ranges::any_of(addresses_of(host.name), [&](const std::string& address) { return wanted.contains(address); });
  });
}

int64_t slots_of(const std::vector<LaunchHost>& hosts) {
  int64_t slots = 0;
  for (const LaunchHost& host : hosts) slots += host.slots;
  return slots;
}

std::optional<std::vector<LaunchHost>> first_hosts(const std::vector<LaunchHost>& hosts, int64_t ranks) {
  std::vector<LaunchHost> first;
  for (const LaunchHost& host : hosts) {
    if (ranks <= 0) break;
    first.push_back(host);
    ranks -= host.slots;
  }
  return ranks <= 0 ? std::optional(first) : std::nullopt;
}

LaunchedTraining on_hosts(LaunchedTraining training, const LaunchHosts& all, const std::vector<LaunchHost>& used,
                          const std::vector<std::string>& excluded, const std::string& hostfile) {
  if (!all.by_srun) {
    set_option(training, kHostfileWords, hostfile);
    return training;
  }
  // A step of srun takes all nodes of its job unless it says how many.
  set_option(training, {"--nodes", "-N"}, std::to_string(used.size()));
  if (excluded.empty()) return training;
  const std::vector<std::string> words{"--exclude", "-x"};
  const auto at = option_at(training, words);
  set_option(training, words, (at ? value_at(training, *at) + "," : "") + joined_names(excluded));
  return training;
}

std::string hostfile_text(const std::vector<LaunchHost>& used) {
  std::string lines;
  for (const LaunchHost& host : used) lines += host.line + "\n";
  return lines;
}

}  // namespace trireme
