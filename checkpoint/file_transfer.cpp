#include "checkpoint/file_transfer.h"

#include <algorithm>
#include <optional>

#include "checkpoint/directory_layout.h"
#include "checkpoint/problem.h"
#include "checkpoint/removal.h"

namespace trireme {

namespace {

constexpr int64_t kPortion = 4 << 20;  // bytes of a message

}  // namespace

void send_file(const Io& io, const Nodes& nodes, int64_t to, const std::string& path, int64_t bytes) {
  const DiskMemory portion(kPortion);
  std::optional<IoFile> file;
  std::string problem = problem_of([&] { file.emplace(IoFile::open_to_read(io, path)); });
  for (int64_t at = 0; at < bytes; at += kPortion) {
    const int64_t now = std::min(kPortion, bytes - at);
    // Sends as many bytes in every case, since the receiver waits for them and checks them.
    if (problem.empty()) problem = problem_of([&] { file->read_at(portion.data(), now, at); });
    nodes.send(to, portion.data(), now);
  }
  if (!problem.empty()) throw DamagedCheckpoint(problem);
}

void receive_file(const Io& io, const Nodes& nodes, int64_t from, const std::string& path, int64_t bytes) {
  const DiskMemory portion(kPortion);
  std::optional<IoFile> file;
  std::string problem = problem_of([&] {
    remove_file(io, path + kTemporary);  // left by a process that was killed
    file.emplace(IoFile::create(io, path + kTemporary));
  });
  for (int64_t at = 0; at < bytes; at += kPortion) {
    const int64_t now = std::min(kPortion, bytes - at);
    nodes.receive(from, portion.data(), now);
    if (problem.empty()) problem = problem_of([&] { file->write_at(portion.data(), now, at); });
  }
  if (problem.empty())
    problem = problem_of([&] {
      file->close();
      rename_path(io, path + kTemporary, path);
    });
  if (problem.empty()) return;
  problem_of([&] { remove_file(io, path + kTemporary); });
  throw CheckpointError(problem);
}

}  // namespace trireme
