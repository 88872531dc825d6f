#include "test/simulation/messages.h"

#include <algorithm>

namespace trireme::simulation {

Group& Messages::world(int64_t job, int64_t size) {
  Group& group = worlds_[job];
  for (auto rank = static_cast<int>(group.ranks.size()); rank < size; ++rank) group.ranks.push_back(rank);
  group.entered.resize(group.ranks.size());
  return group;
}

Member& Messages::member(Group& group, int rank) { return members_.emplace_back(Member{&group, rank}); }

Group& Messages::part(const Group& whole, int64_t round, int64_t color) { return parts_[{&whole, {round, color}}]; }

Request& Messages::request() { return requests_.emplace_back(); }

int64_t Messages::enter(Member& member, std::string mine) {
  Group& group = *member.group;
  const int64_t round = group.entered[static_cast<size_t>(member.rank)]++;
  Contributions& there = group.rounds[round];
  there.resize(group.ranks.size());
  there[static_cast<size_t>(member.rank)] = std::move(mine);
  return round;
}

bool Messages::is_ready(const Request& request) const {
  if (request.needs == Request::Needs::nothing) return true;
  if (request.needs == Request::Needs::mail) {
    const auto found = request.group->mail.find(request.mail);
    return found != request.group->mail.end() && !found->second.empty();
  }
  const Contributions& there = request.group->rounds.at(request.round);
  if (request.needs == Request::Needs::root) return there.front().has_value();
  return std::ranges::all_of(there, [](const auto& one) { return one.has_value(); });
}

void Messages::finish(Request& request) {
  if (request.needs == Request::Needs::mail) {
    auto& mail = request.group->mail.at(request.mail);
    request.received(mail.front());
    mail.pop_front();
  } else if (request.arrived) {
    request.arrived(request.group->rounds.at(request.round));
  }
}

}  // namespace trireme::simulation
