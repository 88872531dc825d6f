// Messages: MPI among simulated ranks. Members of a group meet in rounds, one for each collective
// in the order of their calls, and send each other mail.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::simulation {

using Contributions = std::vector<std::optional<std::string>>;  // by rank; nullopt: not yet there

struct Group {
  std::vector<int> ranks;  // in the job
  std::map<int64_t, Contributions> rounds{};
  std::vector<int64_t> entered{};                                 // rounds, by member
  std::map<std::pair<int, int>, std::deque<std::string>> mail{};  // by sender and receiver
};

// A member's view of its group; MPI's handle of a communicator.
struct Member {
  Group* group;
  int rank;
};

// A wait of a member.
struct Request {
  enum class Needs { nothing, root, all, mail } needs = Needs::nothing;
  Group* group = nullptr;
  int64_t round = 0;
  std::pair<int, int> mail{};
  std::function<void(const Contributions&)> arrived{};  // with all contributions that are there
  std::function<void(const std::string&)> received{};
};

class Messages {
 public:
  Group& world(int64_t job, int64_t size);
  Member& member(Group& group, int rank);
  // The group of this color among the members that met in this round.
  Group& part(const Group& whole, int64_t round, int64_t color);
  Request& request();

  int64_t enter(Member& member, std::string mine);  // the next round; returns its number
  bool is_ready(const Request& request) const;
  void finish(Request& request);

 private:
  std::map<int64_t, Group> worlds_;
  std::map<std::pair<const Group*, std::pair<int64_t, int64_t>>, Group> parts_;
  std::deque<Member> members_;
  std::deque<Request> requests_;
};

}  // namespace trireme::simulation
