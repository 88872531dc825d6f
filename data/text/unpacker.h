// Unpacker: one compression format, undone piece by piece.
#pragma once

#include <memory>
#include <string>

namespace trireme {

class Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual void reset() = 0;
  // Unpacks from `in` to `out`, and moves both. Returns whether the text may end here. `problem` names what is wrong, or is
  // nullptr.
  virtual bool unpack(const char*& in, const char* in_end, char*& out, char* out_end, const char*& problem) = 0;
};

// The one for the suffix of `path`: .gz, .zst, .xz or .bz2; nullptr for any other.
std::unique_ptr<Unpacker> unpacker_for(const std::string& path);

// `path` without such a suffix.
std::string unpacked_name(const std::string& path);

}  // namespace trireme
