#include "train/telemetry/http_request.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"

namespace trireme {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

bool is_method(std::string_view word) {
  return !word.empty() && word.size() <= 16 && std::ranges::all_of(word, [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_path(std::string_view word) {
  return word.starts_with('/') && std::ranges::all_of(word, [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string in_lower_case(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "localhost" of " LocalHost:8080", "[::1]" of " [::1]:8080".
std::string without_port(std::string_view value) {
  constexpr std::string_view blanks = " \t\r";
  value.remove_prefix(std::min(value.find_first_not_of(blanks), value.size()));
  value = value.substr(0, value.find_last_not_of(blanks) + 1);
  return in_lower_case(value.substr(0, value.find(':', value.starts_with('[') ? value.find(']') : 0)));
}

// Names the hosts of all headers Host.
std::vector<std::string> hosts_in(std::string_view head) {
  std::vector<std::string> hosts;
  for (size_t begin = head.find('\n'); begin < head.size(); begin = head.find('\n', begin + 1)) {
    const std::string_view line = head.substr(begin + 1, head.find('\n', begin + 1) - begin - 1);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && in_lower_case(line.substr(0, colon)) == "host")
      hosts.push_back(without_port(line.substr(colon + 1)));
  }
  return hosts;
}

}  // namespace

std::optional<HttpRequest> parse_http(std::string_view received) {
  const size_t end = std::min(received.find("\r\n\r\n"), received.find("\n\n"));
  if (end == std::string_view::npos && received.size() < kLongestRequest) return std::nullopt;
  const std::string_view line = received.substr(0, received.find_first_of("\r\n"));
  const size_t method = line.find(' '), path = line.rfind(' ');
  if (end == std::string_view::npos || method == std::string_view::npos || path == method) return HttpRequest{};
  std::string_view target = line.substr(method + 1, path - method - 1);
  if (!is_method(line.substr(0, method)) || !is_path(target) || !line.substr(path + 1).starts_with("HTTP/1.")) return HttpRequest{};
  const std::vector<std::string> hosts = hosts_in(received.substr(0, end));
  if (hosts.size() > 1) return HttpRequest{};
  target = target.substr(0, target.find('?'));
  return HttpRequest{.method = std::string(line.substr(0, method)),
                     .path = std::string(target),
                     .host = hosts.empty() ? std::string() : hosts.front()};
}

std::string http_bytes(const HttpAnswer& answer, bool with_body) {
  const std::string head = text("HTTP/1.1 ", answer.status, " ", reason(answer.status), "\r\nContent-Type: ", answer.type,
                                "\r\nContent-Length: ", answer.body.size(),
                                "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  return with_body ? head + answer.body : head;
}

}  // namespace trireme
