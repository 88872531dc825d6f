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
  int listener_ = -1, port_ = 0, stop_[2] = {-1, -1};
  std::vector<Client> clients_;
  std::thread thread_;
};

}  // namespace trireme
