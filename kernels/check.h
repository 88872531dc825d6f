// Errors, and how the program ends because of them.
//
// ConfigError: the user can fix it (exit 2). DataError: a shard, text or tokenizer is bad (3). CheckpointError: no usable
// checkpoint (4). Stopped: ended on request after a save (75). Error: everything else (70); it carries the caller's file:line.
// One catch in main turns them into a line on stderr and an exit code; nothing else in the program catches to ignore.
#pragma once

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>

namespace trireme {

enum class ExitCode : int { done = 0, usage = 2, data = 3, checkpoint = 4, internal = 70, hang = 71, numerics = 72, stopped = 75 };

// Pieces of a message, joined only when somebody reads it. Holds references: use it inside one full expression.
template <class... Parts>
class Text {
 public:
  explicit Text(const Parts&... parts) : parts_(parts...) {}
  operator std::string() const {
    std::ostringstream out;
    std::apply([&](const auto&... part) { (void)(out << ... << part); }, parts_);
    return std::move(out).str();
  }

 private:
  std::tuple<const Parts&...> parts_;
};

template <class... Parts>
Text<Parts...> text(const Parts&... parts) {
  return Text<Parts...>(parts...);
}

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::source_location at = std::source_location::current())
      : Error(message + " (" + at.file_name() + ":" + std::to_string(at.line()) + ")", ExitCode::internal) {}
  ExitCode code() const { return code_; }

 protected:
  Error(const std::string& message, ExitCode code) : std::runtime_error(message), code_(code) {}

 private:
  ExitCode code_;
};

// Several problems found together are separated by newlines, one line each.
struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::usage) {}
};
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(message, ExitCode::data) {}
};
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& message) : Error(message, ExitCode::checkpoint) {}
};
struct NumericsError : Error {
  explicit NumericsError(const std::string& message) : Error(message, ExitCode::numerics) {}
};
struct Stopped : Error {
  explicit Stopped(const std::string& message) : Error(message, ExitCode::stopped) {}
};

// For what must hold inside the program; the user's mistakes are ConfigError and DataError.
template <class... Parts>
void require(bool holds, const Text<Parts...>& message, std::source_location at = std::source_location::current()) {
  if (!holds) [[unlikely]]
    throw Error(static_cast<std::string>(message), at);
}

}  // namespace trireme
