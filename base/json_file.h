// JSON out of foreign files: regular files, within limits, read in a confined process.
#pragma once

#include <string>

#include "base/json.h"

namespace trireme {

// The value that a file holds. DataError with the path: it cannot be read, exceeds a limit ("too
// many for WHAT"), or is not JSON at a byte.
Json read_json(const std::string& path, const JsonLimits& limits, const char* what);

}  // namespace trireme
