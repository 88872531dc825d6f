#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "data/utf8.h"
#include "kernels/check.h"

namespace trireme {

namespace {

// No character below U+0300 changes or composes with the one before it; these begin with a byte below 0xcc.
bool stays(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0xcc; });
}

void append_composed(std::string_view valid, std::string& composed) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()), static_cast<utf8proc_ssize_t>(valid.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (length < 0) throw Error(std::string("utf8proc: ") + utf8proc_errmsg(length));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(mapped, std::free);
  composed.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

}  // namespace

bool compose(std::string_view text, std::string& composed) {
  if (stays(text)) return false;
  composed.clear();
  while (!text.empty()) {
    const size_t valid = utf8_prefix(text);
    if (valid > 0) append_composed(text.substr(0, valid), composed);
    text.remove_prefix(valid);
    const size_t other = text.empty() ? 0 : 1;
    composed.append(text.substr(0, other));
    text.remove_prefix(other);
  }
  return true;
}

}  // namespace trireme
