// MPI for this whole program, which starts no real ranks: see messages.h.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "parallel/mpi_comm.h"
#include "test/simulation/world.h"

using namespace trireme::simulation;

namespace {

template <class Handle>
Handle handle_of(const void* object) {
  Handle handle{};
  static_assert(sizeof handle >= sizeof object, "MPI's handles are too small for pointers");
  std::memcpy(&handle, &object, sizeof object);
  return handle;
}
template <class Object, class Handle>
Object& object_of(Handle handle) {
  Object* object = nullptr;
  std::memcpy(&object, &handle, sizeof object);
  return *object;
}

Group& world_group(const Process& process) {
  int64_t size = 1;
  const std::string& words = process.environment.at("OMPI_COMM_WORLD_SIZE");
  (void)std::from_chars(words.data(), words.data() + words.size(), size);
  return simulated()->messages.world(process.job, size);
}

Member& member_of(MPI_Comm comm) {
  if (std::memcmp(&comm, std::array{MPI_COMM_WORLD}.data(), sizeof comm) != 0) return object_of<Member>(comm);
  World& world = *simulated();
  Process& self = world.self();
  if (self.member == nullptr) self.member = &world.messages.member(world_group(self), static_cast<int>(self.rank));
  return *self.member;
}

size_t bytes_of(MPI_Datatype type, int count) { return (type == MPI_BYTE ? 1 : 8) * static_cast<size_t>(count); }

// Begins a wait of the calling rank.
void begin(MPI_Request* handle, Request request) {
  World& world = *simulated();
  Request& made = world.messages.request();
  made = std::move(request);
  *handle = handle_of<MPI_Request>(&made);
  world.wake(made.group);
}

void wait_for(World& world, Request& request) {
  while (!world.messages.is_ready(request)) (void)world.wait(request.group);
  world.messages.finish(request);
}

// A round in which all members wait for all.
Contributions meet(MPI_Comm comm, std::string mine, int64_t* number = nullptr) {
  const Call call("MPI round");
  Member& member = member_of(comm);
  Contributions all;
  Request request{.needs = Request::Needs::all, .group = member.group};
  request.arrived = [&all](const Contributions& there) { all = there; };
  request.round = call->messages.enter(member, std::move(mine));
  if (number != nullptr) *number = request.round;
  call->wake(member.group);
  wait_for(*simulated(), request);
  return all;
}

int make_group(MPI_Comm comm, int color, MPI_Comm* made) {
  int64_t round = 0;
  const Contributions colors = meet(comm, std::to_string(color), &round);
  const Unowned unowned;
  Member& member = member_of(comm);
  Group& part = simulated()->messages.part(*member.group, round, color);
  int mine = 0;
  std::vector<int> ranks;
  for (size_t r = 0; r < colors.size(); ++r) {
    if (*colors[r] != std::to_string(color)) continue;
    if (static_cast<int>(r) == member.rank) mine = static_cast<int>(ranks.size());
    ranks.push_back(member.group->ranks[r]);
  }
  part.ranks = ranks, part.entered.resize(ranks.size());
  *made = handle_of<MPI_Comm>(&simulated()->messages.member(part, mine));
  return MPI_SUCCESS;
}

// Memory that a request fills when it ends.
struct Target {
  void* memory;
  size_t bytes;  // of each member
};

void gather_into(Target target, const Contributions& there) {
  for (size_t r = 0; r < there.size(); ++r)
    std::memcpy(static_cast<char*>(target.memory) + r * target.bytes, there[r]->data(), target.bytes);
}

}  // namespace

extern "C" {

int MPI_Init_thread(int*, char***, int wanted, int* provided) {
  const Unowned unowned;
  *provided = wanted;
  (void)meet(MPI_COMM_WORLD, "");
  return MPI_SUCCESS;
}
int MPI_Finalize() {
  const Unowned unowned;
  (void)meet(MPI_COMM_WORLD, "");
  simulated()->self().finalized = true;
  return MPI_SUCCESS;
}
int MPI_Finalized(int* flag) {
  const Unowned unowned;
  return *flag = simulated() == nullptr || simulated()->self().finalized ? 1 : 0, MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) {
  const Unowned unowned;
  return MPI_SUCCESS;
}
int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  const Unowned unowned;
  return *rank = member_of(comm).rank, MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int* size) {
  const Unowned unowned;
  *size = static_cast<int>(member_of(comm).group->ranks.size());
  return MPI_SUCCESS;
}
int MPI_Comm_split(MPI_Comm comm, int color, int, MPI_Comm* made) {
  const Unowned unowned;
  return make_group(comm, color, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int, int, MPI_Info, MPI_Comm* made) {
  const Unowned unowned;
  return make_group(comm, simulated()->self().node, made);
}
int MPI_Comm_free(MPI_Comm*) {
  const Unowned unowned;
  return MPI_SUCCESS;
}
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  const Unowned unowned;
  *group = handle_of<MPI_Group>(member_of(comm).group);
  return MPI_SUCCESS;
}
int MPI_Group_free(MPI_Group*) {
  const Unowned unowned;
  return MPI_SUCCESS;
}
int MPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group, int translated[]) {
  const Unowned unowned;
  for (int i = 0; i < count; ++i) translated[i] = object_of<Group>(from).ranks[static_cast<size_t>(ranks[i])];
  return MPI_SUCCESS;
}
int MPI_Error_string(int, char* text, int* length) {
  const Unowned unowned;
  *length = static_cast<int>(std::strlen(std::strcpy(text, "simulated")));
  return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm, int code) {
  const Unowned unowned;
  simulated()->exit(code);
}

int MPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int, MPI_Datatype, MPI_Comm comm) {
  const Unowned unowned;
  gather_into({all, bytes_of(type, count)}, meet(comm, {static_cast<const char*>(mine), bytes_of(type, count)}));
  return MPI_SUCCESS;
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Ibarrier");
  Member& member = member_of(comm);
  Request made{.needs = Request::Needs::all, .group = member.group};
  made.round = call->messages.enter(member, "");
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int, MPI_Comm comm, MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Ibcast");
  Member& member = member_of(comm);
  const size_t size = bytes_of(type, count);
  Request made{.needs = member.rank == 0 ? Request::Needs::nothing : Request::Needs::root, .group = member.group};
  made.round = call->messages.enter(member, {static_cast<const char*>(bytes), size});
  if (member.rank > 0)
    made.arrived = [bytes, size](const Contributions& there) { std::memcpy(bytes, there.front()->data(), size); };
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
int MPI_Igather(const void* mine, int count, MPI_Datatype type, void* all, int, MPI_Datatype, int, MPI_Comm comm,
                MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Igather");
  Member& member = member_of(comm);
  const Target target{all, bytes_of(type, count)};
  Request made{.needs = member.rank == 0 ? Request::Needs::all : Request::Needs::nothing, .group = member.group};
  made.round = call->messages.enter(member, {static_cast<const char*>(mine), target.bytes});
  if (member.rank == 0) made.arrived = [target](const Contributions& there) { gather_into(target, there); };
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
int MPI_Iallgather(const void* mine, int count, MPI_Datatype type, void* all, int, MPI_Datatype, MPI_Comm comm,
                   MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Iallgather");
  Member& member = member_of(comm);
  const Target target{all, bytes_of(type, count)};
  Request made{.needs = Request::Needs::all, .group = member.group};
  made.round = call->messages.enter(member, {static_cast<const char*>(mine), target.bytes});
  made.arrived = [target](const Contributions& there) { gather_into(target, there); };
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
// The largest of each of several int64.
int MPI_Iallreduce(const void* mine, void* most, int count, MPI_Datatype type, MPI_Op, MPI_Comm comm, MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Iallreduce");
  Member& member = member_of(comm);
  Request made{.needs = Request::Needs::all, .group = member.group};
  made.round = call->messages.enter(member, {static_cast<const char*>(mine), bytes_of(type, count)});
  made.arrived = [most, count](const Contributions& there) {
    auto* const all = static_cast<int64_t*>(most);
    for (const auto& theirs : there)
      for (int i = 0; i < count; ++i) {
        int64_t number = 0;
        std::memcpy(&number, theirs->data() + i * 8, 8);
        all[i] = std::max(all[i], number);
      }
  };
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int, MPI_Comm comm, MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Isend");
  const Member& member = member_of(comm);
  member.group->mail[{member.rank, to}].emplace_back(static_cast<const char*>(bytes), bytes_of(type, count));
  begin(request, {.group = member.group});
  return MPI_SUCCESS;
}
int MPI_Irecv(void* bytes, int count, MPI_Datatype type, int from, int, MPI_Comm comm, MPI_Request* request) {
  const Unowned unowned;
  const Call call("MPI_Irecv");
  const Member& member = member_of(comm);
  Request made{.needs = Request::Needs::mail, .group = member.group, .mail = {from, member.rank}};
  made.received = [bytes, room = bytes_of(type, count)](const std::string& words) {
    if (words.size() > room)
      simulated()->fail("a message of " + std::to_string(words.size()) + " bytes is received into " + std::to_string(room));
    std::memcpy(bytes, words.data(), std::min(words.size(), room));
  };
  begin(request, std::move(made));
  return MPI_SUCCESS;
}
// Waits instead of testing: a simulated rank has nothing else to do.
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status[]) {
  const Unowned unowned;
  const Call call("MPI_Testall");
  for (int i = 0; i < count; ++i) wait_for(*simulated(), object_of<Request>(requests[i]));
  *done = 1;
  return MPI_SUCCESS;
}
}
