// Requests and answers of HTTP/1.1, as far as a page of numbers needs them: no bodies, one request a connection.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct HttpRequest {
  std::string method, path;  // "GET", "/metrics": without what follows a '?'
  std::string host{};        // that the header Host names, in lower case and without a port; "": none
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8", body{};
};

inline constexpr size_t kLongestRequest = 16 << 10;  // bytes

// A request at the beginning of what a client has sent: nothing as long as its head is not complete. What is not a request has
// an empty method; so has one with several headers Host.
std::optional<HttpRequest> parse_http(std::string_view received);

// The bytes to send; without the body for HEAD.
std::string http_bytes(const HttpAnswer& answer, bool with_body);

}  // namespace trireme
