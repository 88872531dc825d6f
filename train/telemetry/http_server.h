// HttpServer: answers GET requests on a TCP port, on a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "train/telemetry/http_request.h"

namespace trireme {

// One request a connection. Sixteen clients at once; the next ones wait in the system's queue. A client that sends slowly is left
// after five seconds, and one that reads slowly after a second more for each 100 kB of its answer.
//
// On a loopback address, a request must be for localhost, 127.0.0.1, [::1] or that address, with any port; else the answer is 403.
// So no page of another site, whose name leads to this address (DNS rebinding), reads it in a browser. A request without a header
// Host is answered, since browsers always send one. On another address, which the user has asked for, requests for any host are.
class HttpServer {
 public:
  // Opens the port, 0 for any free one. Error when that is not possible, with the reason. `answer` gets a path, on the server's
  // thread; an exception in it becomes 503.
  HttpServer(const std::string& host, int64_t port, std::function<HttpAnswer(const std::string&)> answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  struct Client {
    int socket;
    std::string received{}, answer{};
    size_t sent = 0;
    Clock::time_point deadline{};
  };

  void open(const std::string& host, int64_t port);
  void serve();
  void accept_clients();
  bool advance(Client& client);
  bool receive(Client& client);
  std::string answer_to(const HttpRequest& request);

  const std::function<HttpAnswer(const std::string&)> answer_;
  std::vector<std::string> hosts_{};  // that requests may be for; empty: any
  int listener_ = -1, port_ = 0, stop_[2] = {-1, -1};
  std::vector<Client> clients_;
  std::thread thread_;
};

}  // namespace trireme
