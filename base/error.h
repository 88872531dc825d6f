// Error classes and the exit code of each.
//
// ConfigError: the user can fix it (exit 2). DataError: a shard, text or tokenizer is bad (3).
// CheckpointError: no usable checkpoint (4). Stopped: ended on request after a save (75).
// MachineError: a host is not fit for the run (76). Error: everything else (70), with the caller's
// file:line.
// One catch in main prints the error on stderr and returns its exit code. No other code catches an
// error to ignore it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trireme {

enum class ExitCode : int {
  done = 0,
  usage = 2,
  data = 3,
  checkpoint = 4,
  internal = 70,
  hang = 71,
  numerics = 72,
  stopped = 75,
  machine = 76
};

// A part of a message: a reference to the value to be printed.
class MessagePart {
 public:
  MessagePart(const char* words)
      : value_(words), write_([](std::ostream& out, const void* value) { out << static_cast<const char*>(value); }) {}
  template <class Value>
  requires(!std::is_convertible_v<const Value&, const char*>) MessagePart(const Value& value)
      : value_(&value), write_([](std::ostream& out, const void* it) { out << *static_cast<const Value*>(it); }) {}
  void write(std::ostream& out) const { write_(out, value_); }

 private:
  const void* value_;
  void (*write_)(std::ostream&, const void*);
};

// Cold and never inlined: messages are rare, so their code stays small and out of the way.
[[gnu::noinline, gnu::cold]] inline std::string joined(const MessagePart* parts, size_t count) {
  std::ostringstream out;
  for (size_t i = 0; i < count; ++i) parts[i].write(out);
  return std::move(out).str();
}

// Parts of a message, joined only when the text is read. Holds references: use it inside one full
// expression. The type depends on the number of parts alone, so the compiler instantiates few of
// them.
template <size_t kCount>
class Text {
 public:
  explicit Text(const std::array<MessagePart, kCount>& parts) : parts_(parts) {}
  operator std::string() const { return joined(parts_.data(), kCount); }

 private:
  std::array<MessagePart, kCount> parts_;
};

template <class... Parts>
Text<sizeof...(Parts)> text(const Parts&... parts) {
  return Text<sizeof...(Parts)>({MessagePart(parts)...});
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

// Several problems found together are one message: a line for each.
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
// A launcher can leave the host out.
struct MachineError : Error {
  MachineError(const std::string& message, std::string host, int64_t rank = -1)
      : Error(message, ExitCode::machine), host(std::move(host)), rank(rank) {}
  std::string host;
  int64_t rank;  // the first one on it that was found unfit; -1: all
};

// Checks an invariant of the program. Mistakes of the user are ConfigError and DataError.
template <size_t kCount>
void require(bool holds, const Text<kCount>& message, std::source_location at = std::source_location::current()) {
  if (!holds) [[unlikely]]
    throw Error(static_cast<std::string>(message), at);
}

}  // namespace trireme
