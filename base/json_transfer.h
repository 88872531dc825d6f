// A JSON value as bytes for another process: a byte for its kind, then its length and content. The
// reader trusts nothing of them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace trireme {

std::string pack_json(const Json& value);
// JsonError for bytes that pack_json does not make, or nested deeper than `depth`.
Json unpack_json(std::string_view bytes, int depth);

}  // namespace trireme
