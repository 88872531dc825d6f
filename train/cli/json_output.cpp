#include "train/cli/json_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/replace_file.h"

namespace trireme {

JsonOutput::JsonOutput(const std::string& path) : path_(path), prepared_(prepare_output(path, OutputKind::file)) {
  if (path_ == "-") standard_output_.emplace();
}

JsonOutput::~JsonOutput() {
  if (file_ >= 0) close(file_);
}

void JsonOutput::write(const Json& document) {
  if (wanted()) put(document.dump({.indent = 2}) + "\n", true);
}

void JsonOutput::write_line(const Json& value) {
  if (wanted()) put(value.dump() + "\n", !begun_);
  begun_ = true;
}

void JsonOutput::put(const std::string& text, bool anew) {
  if (!standard_output_ && anew) open_anew();
  const bool done = standard_output_ ? standard_output_->write(text) : file_ >= 0 && write_all(file_, text);
  if (!done) throw DataError("--json " + path_ + ": cannot be written: " + std::strerror(errno));
}

// The file stays open: the reader of a pipe would take its closing for the end.
void JsonOutput::open_anew() {
  if (file_ >= 0) close(file_);
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
}

}  // namespace trireme
