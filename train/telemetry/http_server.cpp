#include "train/telemetry/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

constexpr size_t kMostClients = 16;
constexpr std::chrono::seconds kClientPatience{5};
constexpr size_t kLeastRate = 100'000;  // bytes a second that a client must read
constexpr std::chrono::milliseconds kAcceptPause{
    100};  // after a client that cannot be accepted, for example without file descriptors

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses addresses_of(const std::string& host, int64_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM, hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST;
  addrinfo* list = nullptr;
  const std::string address = host == "localhost" ? "127.0.0.1" : host;  // other names would need a server of names
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    throw Error(text("'", host, "' is not an address such as 127.0.0.1, 0.0.0.0 or ::1"));
  return Addresses(list);
}

struct OpenPort {
  std::string address{};  // a number, "127.0.0.1" or "::1"
  int port = 0;
};

OpenPort port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, 8> service{};
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), service.data(), service.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {.address = host.data(), .port = std::stoi(service.data())};
}

// Hosts that requests to this address may be for; empty: any.
std::vector<std::string> hosts_at(const std::string& address) {
  if (!address.starts_with("127.") && !address.starts_with("::ffff:127.") && address != "::1") return {};
  return {"localhost", "127.0.0.1", "[::1]", address, "[" + address + "]"};
}

}  // namespace

HttpServer::HttpServer(const std::string& host, int64_t port, std::function<HttpAnswer(const std::string&)> answer)
    : answer_(std::move(answer)) {
  open(host, port);
  if (pipe2(stop_, O_CLOEXEC) != 0) {
    const int reason = errno;
    close(listener_);
    throw Error(std::string("no pipe: ") + std::strerror(reason));
  }
  const OpenPort open_port = port_of(listener_);
  port_ = open_port.port, hosts_ = hosts_at(open_port.address);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  close(stop_[1]);
  thread_.join();
  for (const Client& client : clients_) close(client.socket);
  close(listener_), close(stop_[0]);
}

void HttpServer::open(const std::string& host, int64_t port) {
  const Addresses addresses = addresses_of(host, port);
  int reason = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr && listener_ < 0; at = at->ai_next) {
    const int on = 1;
    listener_ = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (listener_ >= 0 && setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener_, at->ai_addr, at->ai_addrlen) == 0 && listen(listener_, 64) == 0)
      return;
    reason = errno;
    if (listener_ >= 0) close(std::exchange(listener_, -1));
  }
  throw Error(text("port ", port, " of ", host, " cannot be opened: ", std::strerror(reason)));
}

void HttpServer::serve() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);  // the steps come first
  for (;;) {
    // While there are too many clients, poll() leaves out the listener.
    std::vector<pollfd> waits{{stop_[0], POLLIN, 0}, {clients_.size() < kMostClients ? listener_ : -1, POLLIN, 0}};
    for (const Client& client : clients_)
      waits.push_back({client.socket, static_cast<short>(client.sent < client.answer.size() ? POLLOUT : POLLIN), 0});
    if (poll(waits.data(), waits.size(), clients_.empty() ? -1 : 1000) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    size_t at = 2;
    std::erase_if(clients_, [&](Client& client) {
      const bool stays = (waits[at++].revents == 0 || advance(client)) && Clock::now() < client.deadline;
      if (!stays) close(client.socket);
      return !stays;
    });
    if (waits[1].revents != 0) accept_clients();
  }
}

void HttpServer::accept_clients() {
  while (clients_.size() < kMostClients) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno != EAGAIN) std::this_thread::sleep_for(kAcceptPause);
      return;
    }
    clients_.push_back({.socket = socket, .deadline = Clock::now() + kClientPatience});
  }
}

// Reads from or writes to a client. False when it is done with.
bool HttpServer::advance(Client& client) {
  if (client.answer.empty() || client.sent == client.answer.size()) return receive(client);
  const std::string_view rest = std::string_view(client.answer).substr(client.sent);
  const ssize_t n = send(client.socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client.sent += static_cast<size_t>(n);
  // The client closes first: a socket that is closed with bytes unread would take back the answer.
  if (client.sent == client.answer.size()) shutdown(client.socket, SHUT_WR);
  return true;
}

bool HttpServer::receive(Client& client) {
  std::array<char, 4096> bytes;
  const ssize_t n = recv(client.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
  if (!client.answer.empty()) return true;  // what follows a request is not read
  client.received.append(bytes.data(), static_cast<size_t>(n));
  const auto request = parse_http(client.received);
  if (!request) return true;
  client.answer = answer_to(*request), client.received.clear();
  client.deadline = Clock::now() + kClientPatience + std::chrono::seconds(client.answer.size() / kLeastRate);
  return true;
}

std::string HttpServer::answer_to(const HttpRequest& request) try {
  if (request.method.empty()) return http_bytes({.status = 400, .body = "not a request\n"}, true);
  const bool guarded = !hosts_.empty() && request.path != "/healthz";  // it says nothing that a foreign page could use
  if (guarded && !request.host.empty() && std::ranges::find(hosts_, request.host) == hosts_.end())
    return http_bytes({.status = 403, .body = "open on loopback only: ask for localhost\n"}, request.method != "HEAD");
  if (request.method != "GET" && request.method != "HEAD") return http_bytes({.status = 405, .body = "only GET\n"}, true);
  return http_bytes(answer_(request.path), request.method == "GET");
} catch (const std::exception& error) {
  return http_bytes({.status = 503, .body = std::string(error.what()) + "\n"}, true);
}

}  // namespace trireme
