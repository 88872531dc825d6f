// Results of a command as JSON: --json FILE, or --json - for standard output, on which nothing else is printed then. docs/json.md
// lists the names.
//
//     JsonOutput json(options.json);              // before the work: an output that cannot be written is refused at once
//     say("...");                                 // for people; with --json - on standard error
//     json.write({{"tokens", 12}, ...});
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "train/cli/output_path.h"
#include "train/telemetry/log.h"

namespace trireme {

class JsonOutput {
 public:
  // "": no JSON is wanted, and write() does nothing. DataError as prepare_output().
  explicit JsonOutput(const std::string& path);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;
  bool wanted() const { return !path_.empty(); }
  // The document, indented. DataError when it cannot be written.
  void write(const Json& document);
  // One line of JSON lines; a file begins with the first of them.
  void write_line(const Json& value);

 private:
  void put(const std::string& text, bool anew);
  void open_anew();

  std::string path_;
  PreparedOutput prepared_;
  std::optional<ReservedOutput> standard_output_;
  int file_ = -1;
  bool begun_ = false;
};

}  // namespace trireme
