// Build journal: the state of a directory whose shards are being made. With it a killed build continues where it was, and
// half-renamed shards are not taken for a corpus. It is DIRECTORY/.build.json while shards are made, and replaces that by
// DIRECTORY/.renaming.json (kRenamingNote) while they get their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/build/hold_out.h"
#include "data/build/split_writer.h"
#include "data/documents/documents.h"

namespace trireme {

struct BuildJournal {
  std::string key{};                 // of all that the shards depend on
  std::vector<std::string> parts{};  // digests of what the key is made of; empty in journals of older versions
  std::vector<SplitState> splits{};
  int64_t list = 0;  // of files: what is read for training, what is held out whole
  Documents::Position at{};
  bool held_out = false;  // the document that the next passage continues
  bool broken = false;    // the passage before the next one was left out, so that the next one begins a document
  HoldOut hold_out{};
  Problems problems{};
  std::filesystem::file_time_type saved{};  // of one that was loaded: when

  void save(const std::string& directory) const;  // on disk, in the place of the one before
  // nullopt: there is none, or it is damaged.
  static std::optional<BuildJournal> load(const std::string& directory);
  // Gives the written shards of the splits their names; those of an earlier build, and more of them, go.
  void commit(const std::string& directory) const;
  static void remove(const std::string& directory);  // also what an interrupted save() left
};

// Completes an interrupted renaming, and removes what one left that had not begun. Returns the journal of its build; nullopt: there
// was none.
std::optional<BuildJournal> finish_renaming(const std::string& directory);

}  // namespace trireme
