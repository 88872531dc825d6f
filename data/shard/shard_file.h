// The file of a shard, open while it is used. A corpus may have more shards than a process may have open files: those that were
// opened last stay open.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/file.h"

namespace trireme {

class ShardFile {
 public:
  explicit ShardFile(const std::string& path);  // opens it
  // Opens it when it is first used, and then calls `check`, which throws unless it is the file that was meant.
  ShardFile(const std::string& path, std::function<void(const File&)> check);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  const std::string& path() const { return path_; }

  // Keeps the file open.
  class Use {
   public:
    explicit Use(const ShardFile& file) : file_(file) {}
    ~Use() { file_.release(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    const File& operator*() const { return *file_.file_; }
    const File* operator->() const { return &*file_.file_; }

   private:
    const ShardFile& file_;
  };
  // The file that was opened first; DataError if another one has its name by now. From several threads at once, if wanted.
  Use open() const;

 private:
  struct Identity {
    dev_t device;
    ino_t inode;
    off_t size;
    bool operator==(const Identity&) const = default;
  };
  static Identity identity_of(const File& file);
  friend class OpenFiles;
  void release() const;

  const std::string path_;
  const std::function<void(const File&)> check_;
  mutable std::optional<Identity> identity_;  // OpenFiles guards these
  mutable std::optional<File> file_;
  mutable int users_ = 0;
};

}  // namespace trireme
