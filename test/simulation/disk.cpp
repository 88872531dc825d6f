#include "test/simulation/disk.h"

#include <algorithm>
#include <set>
#include <utility>

namespace trireme::simulation {

namespace {

void put(std::string& bytes, const Inode::Write& write) {
  if (write.size >= 0) return bytes.resize(static_cast<size_t>(write.size));
  const auto end = static_cast<size_t>(write.offset) + write.bytes.size();
  if (bytes.size() < end) bytes.resize(end);
  std::copy(write.bytes.begin(), write.bytes.end(), bytes.begin() + write.offset);
}

}  // namespace

int Disk::make(bool directory) {
  inodes_.push_back({.directory = directory, .bytes = {}, .durable = {}});
  return static_cast<int>(inodes_.size()) - 1;
}

int Disk::find(std::string_view path) const {
  int now = 0;
  while (!path.empty() && now >= 0) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (name.empty() || name == ".") continue;
    const Inode& here = at(now);
    const auto entry = here.entries.find(name);
    now = here.directory && entry != here.entries.end() ? entry->second : -1;
  }
  return now;
}

void Disk::apply(const Change& change, bool durably) {
  for (const Edit& edit : change) {
    Entries& entries = durably ? at(edit.directory).durable_entries : at(edit.directory).entries;
    if (edit.inode < 0)
      entries.erase(edit.name);
    else
      entries[edit.name] = edit.inode;
  }
}

void Disk::change(std::vector<Edit> edits) {
  apply(edits, false);
  pending_.push_back(std::move(edits));
}

void Disk::write(int inode, int64_t offset, std::string_view bytes) {
  Inode& file = at(inode);
  file.unsynced.push_back({.offset = offset, .bytes = std::string(bytes)});
  put(file.bytes, file.unsynced.back());
  ++file.version;
}

void Disk::resize(int inode, int64_t size) {
  Inode& file = at(inode);
  file.unsynced.push_back({.offset = 0, .bytes = {}, .size = size});
  put(file.bytes, file.unsynced.back());
  ++file.version;
}

// Syncing a directory makes durable what changed it, and all earlier changes of the other
// directories that these changes touch.
void Disk::sync(int inode) {
  Inode& node = at(inode);
  if (!node.directory) {
    if (!std::exchange(node.unsynced, {}).empty()) node.durable = node.bytes;
    return;
  }
  std::set<int> wanted{inode};
  std::vector<bool> due(pending_.size(), false);
  for (size_t i = pending_.size(); i-- > 0;) {
    due[i] = std::ranges::any_of(pending_[i], [&](const Edit& edit) { return wanted.contains(edit.directory); });
    if (due[i])
      for (const Edit& edit : pending_[i]) wanted.insert(edit.directory);
  }
  std::vector<Change> rest;
  for (size_t i = 0; i < pending_.size(); ++i)
    if (due[i])
      apply(pending_[i], true);
    else
      rest.push_back(std::move(pending_[i]));
  pending_ = std::move(rest);
}

void Disk::settle(Inode& file, Random& random, double survival) {
  for (const Inode::Write& write : file.unsynced)
    if (random.chance(survival)) put(file.durable, write);
  file.unsynced.clear();
}

void Disk::fail_sync(int inode, Random& random) {
  if (!at(inode).directory) settle(at(inode), random, 0.5);
}

void Disk::lose_power(Random& random, double survival) {
  for (const Change& change : pending_)
    if (random.chance(survival)) apply(change, true);
  pending_.clear();
  for (Inode& node : inodes_) {
    settle(node, random, survival);
    if (node.bytes != node.durable) ++node.version;
    node.bytes = node.durable;
    node.entries = node.durable_entries;
    node.lock = nullptr;
  }
}

void Disk::make_all_durable() {
  for (const Change& change : pending_) apply(change, true);
  pending_.clear();
  for (Inode& node : inodes_) node.unsynced.clear(), node.durable = node.bytes;
}

}  // namespace trireme::simulation
