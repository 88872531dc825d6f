// The file of a shard, open while it is used. A corpus may have more shards than a process may have open files: those that were
// opened last stay open.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "base/file.h"

namespace trireme {

class ShardFile {
 public:
  // Size and digest of the header, which has the digests of all else: a shard with other content has another.
  struct Identity {
    int64_t bytes;
    uint64_t header;
    bool operator==(const Identity&) const = default;
  };

  explicit ShardFile(const std::string& path);          // opens it
  ShardFile(const std::string& path, Identity wanted);  // does not
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
  // DataError if another shard has its name by now. From several threads at once, if wanted.
  Use open() const;

  static std::string header_of(const File& file);  // its first bytes, without zeros at the end

 private:
  static Identity identity_of(const File& file);
  friend class OpenFiles;
  void release() const;

  const std::string path_;
  Identity identity_;
  mutable std::mutex opening_;
  mutable std::optional<File> file_;  // OpenFiles guards these
  mutable int users_ = 0;
};

}  // namespace trireme
