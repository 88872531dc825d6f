// What a directory of shards in the making knows of itself, so that a build that was killed goes on where it was, and shards that
// are half renamed are not taken for a corpus: DIRECTORY/.build.json while they are made, DIRECTORY/.renaming.json (kRenamingNote)
// while they get their names, which replaces the former.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/build/hold_out.h"
#include "data/build/split_writer.h"
#include "data/documents/documents.h"

namespace trireme {

struct BuildJournal {
  std::string key{};  // of all that the shards depend on
  std::vector<SplitState> splits{};
  int64_t list = 0;  // of files: what is read for training, what is held out whole
  Documents::Position at{};
  bool held_out = false;  // the document that the next passage continues
  HoldOut hold_out{};
  Problems problems{};

  void save(const std::string& directory) const;  // on disk, in the place of the one before
  // nullopt: there is none, or it is damaged.
  static std::optional<BuildJournal> load(const std::string& directory);
  // Gives the written shards of the splits their names; those of an earlier build, and more of them, go.
  void commit(const std::string& directory) const;
  static void remove(const std::string& directory);
};

// Goes on with a renaming that was cut off; the journal of the build that had come so far, nullopt if none had.
std::optional<BuildJournal> finish_renaming(const std::string& directory);

}  // namespace trireme
