#include "base/json_file.h"

#include "base/confined.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_transfer.h"

namespace trireme {

Json read_json(const std::string& path, const JsonLimits& limits, const char* what) {
  const std::string bytes = read_file(path, limits.bytes, what);
  const std::string packed = run_confined(path, [&] {
    try {
      return pack_json(Json::parse(bytes, limits));
    } catch (const JsonError& problem) {
      throw DataError(path + ": " + problem.what());
    }
  });
  return unpack_json(packed, limits.depth);
}

}  // namespace trireme
