#include "train/cli/json_output.h"

#include <fstream>

#include "base/error.h"

namespace trireme {

JsonOutput::JsonOutput(const std::string& path) : path_(path), prepared_(prepare_output(path, OutputKind::file)) {
  if (path_ == "-") standard_output_.emplace();
}

void JsonOutput::write(const Json& document) {
  if (wanted()) put(document.dump({.indent = 2}) + "\n", true);
}

void JsonOutput::write_line(const Json& value) {
  if (wanted()) put(value.dump() + "\n", !begun_);
  begun_ = true;
}

void JsonOutput::put(const std::string& text, bool anew) {
  const bool done = standard_output_ ? standard_output_->write(text)
                                     : bool((std::ofstream(path_, anew ? std::ios::trunc : std::ios::app) << text).flush());
  if (!done) throw DataError("--json " + path_ + ": cannot be written; is the disk full?");
}

}  // namespace trireme
