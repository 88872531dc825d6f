// Disk: files and directories in memory, with what a loss of power leaves of them.
//
// Contents and names become durable by a sync of the file or of the directory. A loss of power
// keeps any subset of the writes and changes of names that were not synced, each as a whole.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "test/simulation/random.h"

namespace trireme::simulation {

using Entries = std::map<std::string, int, std::less<>>;  // names and indices of inodes

// A file or a directory. Indices of inodes are never reused.
struct Inode {
  struct Write {
    int64_t offset;
    std::string bytes;
    int64_t size = -1;  // a truncation to this size instead; -1: none
  };
  bool directory = false;
  std::string bytes, durable;
  std::vector<Write> unsynced{};
  Entries entries{}, durable_entries{};
  int64_t version = 0;         // counts changes of the contents
  int64_t changed = 0;         // time of the last one, in nanoseconds
  const void* lock = nullptr;  // the open file that holds it
  int64_t locked = 0;          // the version then
};

class Disk {
 public:
  // A name that is set, or removed with inode -1.
  struct Edit {
    int directory;
    std::string name;
    int inode;
  };

  Disk() { (void)make(true); }
  Inode& at(int inode) { return inodes_[static_cast<size_t>(inode)]; }
  const Inode& at(int inode) const { return inodes_[static_cast<size_t>(inode)]; }
  int make(bool directory);
  // The inode of a path from the root, without links; -1 if there is none.
  int find(std::string_view path) const;

  void change(std::vector<Edit> edits);  // together or not at all
  void write(int inode, int64_t offset, std::string_view bytes);
  void resize(int inode, int64_t size);
  void sync(int inode);
  // A failed sync: any subset of the writes reaches the disk, and the rest never will.
  void fail_sync(int inode, Random& random);
  // Each unsynced change survives with this probability.
  void lose_power(Random& random, double survival);
  void make_all_durable();

 private:
  using Change = std::vector<Edit>;
  void apply(const Change& change, bool durably);
  void settle(Inode& file, Random& random, double survival);

  std::deque<Inode> inodes_;
  std::vector<Change> pending_;
};

}  // namespace trireme::simulation
