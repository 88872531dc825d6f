#include "train/run/host_choice.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text_stream.h"
#include "train/run/launcher_words.h"
#include "train/run/mesh_suggestion.h"

namespace trireme {
namespace {

constexpr auto kExcludedHeader =
    "# Hosts that trireme supervise --exclude-bad leaves out. Delete a line, and its host comes back at the next start.\n";

std::string one_line(std::string words) {
  std::ranges::replace(words, '\n', ' ');
  return words;
}

bool is_among(const std::vector<LaunchHost>& hosts, const std::string& name) {
  return std::ranges::find(hosts, name, &LaunchHost::name) != hosts.end();
}

// Names of the hosts that are in `after` and not in `before`, for people.
std::string newcomers(const std::vector<LaunchHost>& before, const std::vector<LaunchHost>& after) {
  std::string names;
  for (const LaunchHost& host : after)
    if (!is_among(before, host.name)) names += (names.empty() ? "" : ", ") + host.name;
  return names;
}

std::string counted_ranks(int64_t ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

}  // namespace

std::string excluded_path(const std::string& run) { return run + "/excluded_hosts.txt"; }

Accused accused_host(const std::vector<Attempt>& attempts) {
  const Attempt& last = attempts.back();
  if (last.code == static_cast<int>(ExitCode::machine) || last.cause == kNodeLost) return {.host = last.host, .sure = true};
  if (attempts.size() < 2) return {};
  const Attempt& before = attempts[attempts.size() - 2];
  const bool same = before.host == last.host && before.rank == last.rank;
  const bool in_vain = !before.made_progress() && !last.made_progress();
  return same && in_vain && (last.rank >= 0 || last.cause == kUnreachable) ? Accused{.host = last.host} : Accused{};
}

std::vector<std::string> HostChoice::excluded() const {
  std::vector<std::string> names;
  TextReader lines(io_.read(excluded_path(run_)));
  for (std::string line; std::getline(lines, line);) {
    TextReader words(line.substr(0, line.find('#')));
    if (std::string name; words >> name) names.push_back(name);
  }
  return names;
}

std::vector<LaunchHost> HostChoice::free_hosts(const LaunchHosts& all) const {
  std::vector<LaunchHost> free = all.hosts;
  for (const std::string& name : excluded())
    if (const auto at = find_host(free, name)) free.erase(free.begin() + static_cast<std::ptrdiff_t>(*at));
  return free;
}

// The command that was asked for, on the largest mesh of at most so many ranks.
std::optional<LaunchedTraining> HostChoice::at_most(int64_t ranks) const {
  if (ranks >= asked_.ranks) return asked_;
  for (; asked_.ranks_at && ranks >= 1; --ranks)
    if (const std::optional<std::string> settings = nearest_mesh(config_, ranks, 0)) return asked_.with(ranks, *settings);
  return std::nullopt;
}

LaunchedTraining HostChoice::resized(LaunchedTraining training) {
  if (training.ranks != ranks_)
    io_.say("supervise: continues with " + counted_ranks(training.ranks) + " instead of " + std::to_string(ranks_));
  ranks_ = training.ranks;
  return training;
}

LaunchedTraining HostChoice::next() {
  if (!io_.hosts) return resized(at_most(most_).value_or(asked_));
  const LaunchHosts all = io_.hosts();
  return on_free_hosts(all);
}

LaunchedTraining HostChoice::on_free_hosts(const LaunchHosts& all) {
  // There before the first start, for people to edit; a start that fails then leaves exit.json, which names its host.
  if (const std::string list = excluded_path(run_); io_.read(list).empty()) io_.write(list, kExcludedHeader);
  const std::vector<LaunchHost> free = free_hosts(all);
  std::vector<std::string> names;
  for (const LaunchHost& host : all.hosts)
    if (!is_among(free, host.name)) names.push_back(host.name);
  for (const std::string& name : left_out_)
    if (std::ranges::count(names, name) == 0) io_.say("supervise: " + name + " is not excluded any more, and may be used again");
  left_out_ = names;
  const int64_t slots = slots_of(free);
  const std::optional<LaunchedTraining> fits = slots >= most_ || options_.elastic ? at_most(std::min(most_, slots)) : std::nullopt;
  if (!fits)
    throw ConfigError(text("supervise: ", all.source, " without the hosts of ", excluded_path(run_), " takes ", slots, " of ",
                           counted_ranks(asked_.ranks), ": add a host, delete a line of that file",
                           options_.elastic ? "" : ", or add --elastic"));
  const LaunchedTraining training = resized(*fits);
  const std::vector<LaunchHost> used = first_hosts(free, training.ranks).value_or(free);
  const std::string hostfile = run_ + "/hostfile";
  if (!all.by_srun && !io_.write(hostfile, hostfile_text(used))) throw ConfigError("supervise: cannot write " + hostfile);
  return on_hosts(training, all, used, names, hostfile);
}

void HostChoice::after(const std::vector<Attempt>& attempts, bool fewer) {
  const Attempt& last = attempts.back();
  doubted_ = doubted_ && !last.made_progress();
  if (const Accused accused = accused_host(attempts); io_.hosts && !accused.host.empty() && (accused.sure || !doubted_)) {
    const bool out = exclude(accused.host, last);
    doubted_ = doubted_ || (out && !accused.sure);
    if (out) return;
  }
  if (!fewer || !options_.elastic) return;
  if (const auto smaller = at_most(ranks_ - 1)) most_ = smaller->ranks;
}

// Returns whether the next attempt is without this host.
bool HostChoice::exclude(const std::string& name, const Attempt& attempt) {
  const LaunchHosts all = io_.hosts();
  const std::vector<LaunchHost> free = free_hosts(all);
  const auto at = find_host(free, name);
  if (!at) {
    if (!find_host(all.hosts, name)) io_.say("supervise: " + name + " is not in " + all.source + ": no host is left out");
    return false;
  }
  std::vector<LaunchHost> rest = free;
  const LaunchHost bad = rest[*at];
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(*at));
  const bool spare = slots_of(rest) >= ranks_;
  if (!spare && !(options_.elastic && at_most(slots_of(rest)))) {
    io_.say("supervise: " + bad.name + " is used again: no host is spare for its " + counted_ranks(bad.slots) +
            (options_.elastic ? ", and no smaller mesh fits" : ", and --elastic is not given"));
    return false;
  }
  if (!write_down(bad.name, attempt)) return false;
  const std::vector<LaunchHost> before = first_hosts(free, ranks_).value_or(free), now = first_hosts(rest, ranks_).value_or(rest);
  const std::string instead = newcomers(before, now);
  io_.say("supervise: leaves out " + bad.name +
          (!instead.empty() ? ", and takes " + instead + " instead"
           : spare          ? ", and needs no other"
                            : ", and no host is spare") +
          "; " + excluded_path(run_) + " lists it");
  return true;
}

bool HostChoice::write_down(const std::string& name, const Attempt& attempt) {
  const std::string path = excluded_path(run_), before = io_.read(path);
  const std::string line = name + " " + io_.utc() + " " + one_line(describe(attempt)) + "\n";
  if (io_.write(path, (before.empty() ? kExcludedHeader : before) + line)) return true;
  io_.say("supervise: " + name + " is used again: cannot write " + path);
  return false;
}

}  // namespace trireme
