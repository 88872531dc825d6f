// Lineage: RUN/lineage.jsonl, one line for each checkpoint that was committed to disk. It lies
// beside the directory of checkpoints, so that a run whose checkpoints are missing is not taken for
// a new one. Each line has a digest over itself and the lines before.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/chained_digest.h"
#include "checkpoint/io.h"
#include "checkpoint/manifest.h"

namespace trireme {

// Ends the refusal of a run whose checkpoints are missing.
inline constexpr std::string_view kMissingRemedy =
    ": mount or restore the directory. --resume never starts again from step 0, another train.name starts another run";

struct Commit {
  int64_t step = 0;
  std::string save, run;  // ids
  std::string manifest;   // digest of manifest.json; "": the commit of an older program, known from its records
  std::string time;       // UTC, by this machine's clock
  int64_t tokens = 0;
  std::map<std::string, ChainedDigest> records;  // see Manifest
};

struct LineageText {
  std::vector<Commit> commits;
  std::vector<std::string> problems;  // a line each; a torn last line is none
  ChainedDigest whole;                // of the whole lines
};
// Reads a lineage; empty if there is none. CheckpointError if it cannot be read or is a link.
LineageText read_lineage(const Io& io, const std::string& path);

class Lineage {
 public:
  // `io` must outlive this. The holder of the run's lock may append.
  Lineage(const Io& io, std::string path);

  // The newest commit; step -1: none is known.
  const Commit& last() const { return last_; }
  // Digests of the manifests that it knew when it was opened, by step.
  const std::map<int64_t, uint64_t>& manifests() const { return manifests_; }
  // Appends a line and makes it durable. After a failure the next call repeats nothing and leaves
  // nothing torn. CheckpointError.
  void append(const Commit& commit);
  void append(const Manifest& manifest, uint64_t digest);  // of its text
  std::vector<std::string> take_warnings();

 private:
  const Io& io_;
  std::string path_;
  Commit last_{.step = -1, .save = "", .run = "", .manifest = "", .time = "", .records = {}};
  std::map<int64_t, uint64_t> manifests_;
  ChainedDigest whole_;
  std::vector<std::string> warnings_;
};

std::string lineage_path(const std::string& run_directory);

// Renames `path` to the first free name with a number, "data.1.jsonl"; returns that, "" if there is
// no `path`. CheckpointError.
std::string set_aside(const Io& io, const std::string& path);

}  // namespace trireme
