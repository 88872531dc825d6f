// Build journal: the state of a directory whose shards are being made. With it a killed build continues where it was, and
// half-renamed shards are not taken for a corpus. It is DIRECTORY/.build.json while shards are made, and replaces that by
// DIRECTORY/.renaming.json (kRenamingNote) while they get their names.
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

// Completes an interrupted renaming. Returns the journal of its build; nullopt: there was none.
std::optional<BuildJournal> finish_renaming(const std::string& directory);

}  // namespace trireme
