#include "parallel/mpi_comm.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>

#include "base/clock.h"
#include "base/error.h"
#include "parallel/gpu_group.h"

namespace trireme {
namespace {

// Grace period after a message of a collective fails. Usually ranks are out of step, and the
// watchdogs need the time to name which.
constexpr std::chrono::seconds kForVerdict{30};

constexpr double kYielding = 20e-6;  // seconds

// MPI's handles are pointers or ints, depending on the implementation.
MPI_Comm handle(uint64_t group) {
  MPI_Comm comm;
  std::memcpy(&comm, &group, sizeof comm);
  return comm;
}
uint64_t group_of(MPI_Comm comm) {
  static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t) && std::is_trivially_copyable_v<MPI_Comm>);
  uint64_t group = 0;
  std::memcpy(&group, &comm, sizeof comm);
  return group;
}

// Ranks along an axis of the mesh are equally spaced.
GroupRanks ranks_of(MPI_Comm comm, int size) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  ok(MPI_Comm_group(MPI_COMM_WORLD, &world));
  ok(MPI_Comm_group(comm, &group));
  const std::array<int, 2> here{0, size > 1 ? 1 : 0};
  std::array<int, 2> there{};
  ok(MPI_Group_translate_ranks(group, 2, here.data(), world, there.data()));
  ok(MPI_Group_free(&group));
  ok(MPI_Group_free(&world));
  return {.first = there[0], .stride = std::max(1, there[1] - there[0]), .count = size};
}

// The error of the first request that failed, where MPI returns only that one has.
int cause_of(int mpi_status, const std::vector<MPI_Status>& of_requests) {
  if (mpi_status != MPI_ERR_IN_STATUS) return mpi_status;
  const auto failed = std::ranges::find_if(of_requests, [](const MPI_Status& request) {
    return request.MPI_ERROR != MPI_SUCCESS && request.MPI_ERROR != MPI_ERR_PENDING;
  });
  return failed == of_requests.end() ? mpi_status : failed->MPI_ERROR;
}

}  // namespace

void ok(int mpi_status) {
  if (mpi_status == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(mpi_status, message, &length);
  throw Error("MPI: " + std::string(message, static_cast<size_t>(length)));
}

MPI_Comm handle(const Comm& comm) {
  require(comm.group() != 0, text("a collective along ", comm.axis(), " of an imagined mesh"));
  return handle(comm.group());
}

void wait_all(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return;
  std::vector<MPI_Status> statuses(requests.size());
  for (const auto begin = Clock::now();;) {
    int done = 0;
    const int status = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data());
    if (status != MPI_SUCCESS) std::this_thread::sleep_for(kForVerdict);
    ok(cause_of(status, statuses));
    if (done != 0) return;
    // Soon sleeps for a hundredth of the wait so far. Who yields on a busy core waits for the others' turns.
    const double waited = seconds_since(begin);
    if (waited < kYielding)
      sched_yield();
    else
      usleep(static_cast<useconds_t>(std::clamp(waited * 1e4, 50.0, 1000.0)));
  }
}

int count_of(int64_t bytes) {
  require(bytes <= 1 << 30, text("a message of ", bytes, " bytes"));
  return static_cast<int>(bytes);
}

Comm::Comm(std::string axis, int64_t color, int64_t key, bool launched) : axis_(std::move(axis)) {
  if (!launched) return;
  MPI_Comm group = MPI_COMM_NULL;
  ok(MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(color), static_cast<int>(key), &group));
  int rank = 0, size = 0;
  ok(MPI_Comm_rank(group, &rank));
  ok(MPI_Comm_size(group, &size));
  rank_ = rank, size_ = size, group_ = group_of(group);
  ranks_ = ranks_of(group, size);
}

void Comm::connect_gpus(const GpuUse& use) {
  ordered_ = use.ordered;
  if (size_ > 1) gpus_.reset(open_gpu_group(*this, use).release());
}

void Comm::Closer::operator()(GpuGroup* group) const { delete group; }

GpuGroup& Comm::gpus() const {
  require(gpus_ != nullptr, text("a collective of GPUs along ", axis_, ", but they are not connected"));
  return *gpus_;
}

Comm::~Comm() {
  int finalized = 0;
  if (group_ == 0 || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
  MPI_Comm group = handle(group_);
  MPI_Comm_free(&group);
}

Comm& Comm::operator=(Comm&& other) noexcept {
  std::swap(axis_, other.axis_), std::swap(rank_, other.rank_), std::swap(size_, other.size_), std::swap(group_, other.group_);
  std::swap(locals_, other.locals_), std::swap(ordered_, other.ordered_), std::swap(gpus_, other.gpus_);
  std::swap(shared_, other.shared_), std::swap(ranks_, other.ranks_), std::swap(journal_, other.journal_),
      std::swap(gpu_counter_, other.gpu_counter_);
  return *this;
}

void send_words(const Comm& comm, int to, const std::string& words) {
  auto bytes = static_cast<int64_t>(words.size());
  std::vector<MPI_Request> request(1);
  ok(MPI_Isend(&bytes, 1, MPI_INT64_T, to, kTag, handle(comm), request.data()));
  wait_all(request);
  ok(MPI_Isend(words.data(), count_of(bytes), MPI_BYTE, to, kTag, handle(comm), request.data()));
  wait_all(request);
}

std::string receive_words(const Comm& comm, int from) {
  int64_t bytes = 0;
  std::vector<MPI_Request> request(1);
  ok(MPI_Irecv(&bytes, 1, MPI_INT64_T, from, kTag, handle(comm), request.data()));
  wait_all(request);
  std::string words(static_cast<size_t>(bytes), '\0');
  ok(MPI_Irecv(words.data(), count_of(bytes), MPI_BYTE, from, kTag, handle(comm), request.data()));
  wait_all(request);
  return words;
}

}  // namespace trireme
