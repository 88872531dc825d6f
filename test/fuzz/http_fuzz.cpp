// Fuzzes the reader of HTTP requests. A request that is complete stays the same whatever follows it.
#include "test/fuzz/fuzz.h"
#include "train/telemetry/http_request.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view words = fuzz::words(data, size);
  const auto whole = parse_http(words);
  for (size_t length = 0; length < words.size(); length += 1 + words.size() / 64) {
    const auto part = parse_http(words.substr(0, length));
    if (!part) continue;
    fuzz::must_hold(whole && part->method == whole->method && part->path == whole->path, "what follows a request is not of it");
  }
  if (!whole || whole->method.empty()) return 0;
  fuzz::must_hold(whole->path.starts_with('/') && whole->path.find_first_of("? \r\n") == std::string::npos, "a path is a path");
  const auto again = parse_http(whole->method + " " + whole->path + " HTTP/1.1\r\n\r\n");
  fuzz::must_hold(again && again->path == whole->path, "a request that was written reads back");
  return 0;
}
