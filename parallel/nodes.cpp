#include "parallel/nodes.h"

#include <algorithm>
#include <map>

#include "base/text_stream.h"
#include "parallel/host_collectives.h"
#include "parallel/mpi_comm.h"

namespace trireme {
namespace {

constexpr int64_t kPart = 64 << 20;  // most bytes of one MPI message

}  // namespace

Nodes::Nodes(const World& world, int64_t pretended) {
  if (world.size() == 1) return;
  messages_ = Comm("nodes", 0, world.rank(), world.launched());
  int64_t leader = std::stoll(world.tell_node(std::to_string(world.rank())).front());
  pretended_ = pretended > 0 && largest(messages_, leader) == 0;
  if (pretended_) leader = world.rank() / pretended * pretended;
  std::string leaders;
  for (const std::string& theirs : gather(messages_, std::to_string(leader))) leaders += theirs + ' ';
  TextReader in(broadcast(messages_, leaders));
  std::map<int64_t, std::vector<int64_t>> by_leader;
  for (int64_t rank = 0, its = 0; in >> its; ++rank) by_leader[its].push_back(rank);
  here_ = std::distance(by_leader.begin(), by_leader.find(leader));
  pretended_ = pretended_ && by_leader.size() > 1;
  ranks_.clear();
  for (auto& [first, ranks] : by_leader) ranks_.push_back(std::move(ranks));
}

void Nodes::send(int64_t to, const void* bytes, int64_t count) const {
  std::vector<MPI_Request> request(1);
  for (int64_t done = 0; done < count; done += kPart) {
    ok(MPI_Isend(static_cast<const char*>(bytes) + done, count_of(std::min(kPart, count - done)), MPI_BYTE, static_cast<int>(to),
                 kTag, handle(messages_), request.data()));
    wait_all(request);
  }
}

void Nodes::receive(int64_t from, void* bytes, int64_t count) const {
  std::vector<MPI_Request> request(1);
  for (int64_t done = 0; done < count; done += kPart) {
    ok(MPI_Irecv(static_cast<char*>(bytes) + done, count_of(std::min(kPart, count - done)), MPI_BYTE, static_cast<int>(from), kTag,
                 handle(messages_), request.data()));
    wait_all(request);
  }
}

void Nodes::send(int64_t to, const std::string& words) const { send_words(messages_, static_cast<int>(to), words); }

std::string Nodes::receive(int64_t from) const { return receive_words(messages_, static_cast<int>(from)); }

}  // namespace trireme
