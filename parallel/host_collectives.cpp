#include "parallel/host_collectives.h"

#include <exception>

#include "parallel/mpi_comm.h"

namespace trireme {

std::string broadcast(const Comm& comm, const std::string& mine) {
  if (comm.size() == 1) return mine;
  const JournalSpan span = comm.host_span("broadcast_text", 0);
  std::vector<MPI_Request> request(1);
  auto bytes = static_cast<int64_t>(mine.size());
  ok(MPI_Ibcast(&bytes, 1, MPI_INT64_T, 0, handle(comm), request.data()));
  wait_all(request);
  std::string text = mine;
  text.resize(static_cast<size_t>(bytes));
  ok(MPI_Ibcast(text.data(), count_of(bytes), MPI_BYTE, 0, handle(comm), request.data()));
  wait_all(request);
  return text;
}

std::vector<std::string> gather(const Comm& comm, const std::string& mine) {
  if (comm.size() == 1) return {mine};
  const JournalSpan span = comm.host_span("gather", 0);
  std::vector<MPI_Request> request(1);
  auto bytes = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(comm.size()));
  ok(MPI_Igather(&bytes, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, 0, handle(comm), request.data()));
  wait_all(request);
  if (comm.rank() > 0) {
    ok(MPI_Isend(mine.data(), count_of(bytes), MPI_BYTE, 0, kTag, handle(comm), request.data()));
    wait_all(request);
    return {};
  }
  std::vector<std::string> all{mine};
  for (int r = 1; r < static_cast<int>(comm.size()); ++r) {
    std::string& text = all.emplace_back(static_cast<size_t>(sizes[static_cast<size_t>(r)]), '\0');
    ok(MPI_Irecv(text.data(), count_of(sizes[static_cast<size_t>(r)]), MPI_BYTE, r, kTag, handle(comm), request.data()));
    wait_all(request);
  }
  return all;
}

namespace {

constexpr char kWords = '+', kProblem = '-';  // first byte of a message

std::string bytes_of(const Outcome& report) { return report.failed() ? kProblem + report.problem : kWords + report.words; }

Outcome report_of(const std::string& bytes) {
  return bytes.front() == kProblem ? Outcome{.problem = bytes.substr(1)} : Outcome{.words = bytes.substr(1)};
}

}  // namespace

std::vector<Outcome> gather(const Comm& comm, const Outcome& mine) {
  std::vector<Outcome> all;
  for (const std::string& theirs : gather(comm, bytes_of(mine))) all.push_back(report_of(theirs));
  return all;
}

Outcome broadcast(const Comm& comm, const Outcome& mine) { return report_of(broadcast(comm, bytes_of(mine))); }

Outcome fold(const Comm& comm, const Outcome& mine,
             const std::function<std::string(const std::string& lower, const std::string& higher)>& merge) {
  if (comm.size() == 1) return mine;
  const JournalSpan span = comm.host_span("fold", 0);
  Outcome all = mine;
  const auto rank = static_cast<int>(comm.rank()), size = static_cast<int>(comm.size());
  // Rank r holds what ranks r to r + reach - 1 had.
  for (int reach = 1; reach < size; reach *= 2) {
    if (rank % (2 * reach) != 0) {
      send_words(comm, rank - reach, bytes_of(all));
      return {};
    }
    if (rank + reach >= size) continue;
    const Outcome theirs = report_of(receive_words(comm, rank + reach));
    if (theirs.failed()) {
      all.problem += (all.failed() ? "\n" : "") + theirs.problem;
    } else if (!all.failed()) {
      try {
        all.words = merge(all.words, theirs.words);
      } catch (const std::exception& error) {
        all.problem = error.what();
      }
    }
  }
  return all;
}

std::string first_problem(const Comm& comm, std::string mine) {
  for (const std::string& theirs : gather(comm, mine))
    if (mine.empty()) mine = theirs;
  return broadcast(comm, mine);
}

std::vector<double> sum(const Comm& comm, const std::vector<double>& mine) {
  if (comm.size() == 1 || mine.empty()) return mine;
  const JournalSpan span = comm.host_span("sum", static_cast<int64_t>(mine.size()));
  std::vector<double> total(mine.size());
  std::vector<MPI_Request> request(1);
  ok(MPI_Iallreduce(mine.data(), total.data(), count_of(static_cast<int64_t>(mine.size())), MPI_DOUBLE, MPI_SUM, handle(comm),
                    request.data()));
  wait_all(request);
  return total;
}

std::vector<int64_t> largest(const Comm& comm, const std::vector<int64_t>& mine) {
  if (comm.size() == 1) return mine;
  const JournalSpan span = comm.host_span("agree", static_cast<int64_t>(mine.size()));
  std::vector<int64_t> most = mine;
  std::vector<MPI_Request> request(1);
  ok(MPI_Iallreduce(mine.data(), most.data(), count_of(static_cast<int64_t>(mine.size())), MPI_INT64_T, MPI_MAX, handle(comm),
                    request.data()));
  wait_all(request);
  return most;
}

int64_t total(const Comm& comm, int64_t mine) {
  if (comm.size() == 1) return mine;
  const JournalSpan span = comm.host_span("add up", 1);
  int64_t sum = 0;
  std::vector<MPI_Request> request(1);
  ok(MPI_Iallreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, handle(comm), request.data()));
  wait_all(request);
  return sum;
}

int64_t largest(const Comm& comm, int64_t mine) { return largest(comm, std::vector<int64_t>{mine}).front(); }

}  // namespace trireme
