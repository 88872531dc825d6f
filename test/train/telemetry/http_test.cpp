#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "test/catch.h"
#include "train/telemetry/http_server.h"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

// A connection to a port of this machine.
class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool say(std::string_view words) {
    while (!words.empty()) {
      const ssize_t n = send(socket_, words.data(), words.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      words.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Until the server ends.
  std::string hear() {
    std::string words;
    char bytes[4096];
    for (ssize_t n; (n = recv(socket_, bytes, sizeof bytes, 0)) > 0;) words.append(bytes, static_cast<size_t>(n));
    return words;
  }

 private:
  int socket_;
};

std::string answer_to(int port, std::string_view words) {
  Client client(port);
  client.say(words);
  return client.hear();
}

HttpAnswer test_page(const std::string& path) {
  if (path == "/broken") throw Error("it is broken");
  if (path == "/large") return {.body = std::string(64 << 20, 'x')};
  return {.status = path == "/here" ? 200 : 404, .body = "page " + path + "\n"};
}

constexpr auto kHere = "GET /here?x=1 HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";

bool is_here(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\npage /here\n");
}

}  // namespace

TEST_CASE("a request is read once its head is complete") {
  const auto parsed = [](std::string_view words) {
    const auto request = parse_http(words);
    return request ? request->method + "|" + request->path : "incomplete";
  };
  CHECK(parsed("") == "incomplete");
  CHECK(parsed("GET / HTTP/1.1\r\nHost: x\r\n") == "incomplete");
  CHECK(parsed("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n") == "GET|/metrics");
  CHECK(parsed("HEAD / HTTP/1.0\n\n") == "HEAD|/");
  CHECK(parsed("get / HTTP/1.1\r\n\r\n") == "|");
  CHECK(parsed("GET HTTP/1.1\r\n\r\n") == "|");
  CHECK(parsed("GET x HTTP/1.1\r\n\r\n") == "|");
  CHECK(parsed("GET /a b HTTP/1.1\r\n\r\n") == "|");
  CHECK(parsed("GET /\x01 HTTP/1.1\r\n\r\n") == "|");
  CHECK(parsed("GET / HTTP/2\r\n\r\n") == "|");
  CHECK(parsed("\r\n\r\n") == "|");
  CHECK(parsed(std::string(kLongestRequest, 'x')) == "|");
}

TEST_CASE("a request is for the host of its header, without the port") {
  const auto host_of = [](const std::string& headers) {
    const auto request = parse_http("GET / HTTP/1.1\r\n" + headers + "\r\n");
    REQUIRE(request);
    return request->method.empty() ? "refused" : request->host;
  };
  CHECK(host_of("").empty());
  CHECK(host_of("Accept: */*\r\n").empty());
  CHECK(host_of("Host:\r\n").empty());
  CHECK(host_of("Accept: x\r\nhOST: \t LocalHost:8080 \r\nOrigin: http://y\r\n") == "localhost");
  CHECK(host_of("Host:127.0.0.1\r\n") == "127.0.0.1");
  CHECK(host_of("Host: [::1]:80\r\n") == "[::1]");
  CHECK(host_of("Host: [::1\r\n") == "[::1");
  CHECK(host_of("Host: localhost\r\nHost: localhost\r\n") == "refused");
  CHECK(parse_http("GET / HTTP/1.1\nHost: a.b:1\n\nHost: c\n\n")->host == "a.b");
}

TEST_CASE("a port on loopback answers requests for this machine alone, and a port on all addresses any") {
  const HttpServer inside("127.0.0.1", 0, test_page), outside("0.0.0.0", 0, test_page);
  const auto asked = [](const HttpServer& server, const std::string& host) {
    return answer_to(server.port(), "GET /here HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:22", ""})
    CHECK(is_here(asked(inside, host)));
  CHECK(is_here(answer_to(inside.port(), "GET /here HTTP/1.0\r\n\r\n")));
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::2]",
                           "[::1]evil", "192.168.0.1", "0.0.0.0"}) {
    INFO(host);
    const std::string answer = asked(inside, host);
    CHECK(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"));
    CHECK(answer.ends_with("\r\n\r\nopen on loopback only: ask for localhost\n"));
    CHECK(is_here(asked(outside, host)));
  }
  CHECK(answer_to(inside.port(), "HEAD /here HTTP/1.1\r\nHost: evil.example\r\n\r\n").ends_with("\r\n\r\n"));
  CHECK(answer_to(inside.port(), "GET /healthz HTTP/1.1\r\nHost: proxy.example\r\n\r\n").starts_with("HTTP/1.1 404 "));
  CHECK(answer_to(inside.port(), "GET /healthz/x HTTP/1.1\r\nHost: proxy.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
  CHECK(answer_to(inside.port(), "POST /here HTTP/1.1\r\nHost: evil.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
}

TEST_CASE("a server answers on its port") {
  const HttpServer server("127.0.0.1", 0, test_page);
  REQUIRE(server.port() > 0);
  const std::string answer = answer_to(server.port(), kHere);
  CHECK(is_here(answer));
  CHECK_THAT(answer, ContainsSubstring("\r\nContent-Length: 11\r\n") && ContainsSubstring("\r\nConnection: close\r\n"));
  CHECK(answer_to(server.port(), "HEAD /here HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
  CHECK(answer_to(server.port(), "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 Not Found\r\n"));
  CHECK(answer_to(server.port(), "POST /here HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  CHECK(answer_to(server.port(), "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
  CHECK(answer_to(server.port(), std::string(kLongestRequest, '\xfe')).starts_with("HTTP/1.1 400 Bad Request\r\n"));
  CHECK_THAT(answer_to(server.port(), "GET /broken HTTP/1.1\r\n\r\n"),
             ContainsSubstring("503") && ContainsSubstring("it is broken"));
}

TEST_CASE("a port that is taken is an error that says so") {
  const HttpServer server("127.0.0.1", 0, test_page);
  try {
    const HttpServer other("127.0.0.1", server.port(), test_page);
    FAIL("two servers have one port");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("of 127.0.0.1 cannot be opened: Address already in use"));
  }
  CHECK_THROWS_AS(HttpServer("no.such.name.invalid", 0, test_page), Error);
}

TEST_CASE("clients that say nothing, say it slowly, send without end or never read do not stop the others") {
  const HttpServer server("127.0.0.1", 0, test_page);
  Client silent(server.port()), slow(server.port()), deaf(server.port(), 4096);
  deaf.say("GET /large HTTP/1.1\r\n\r\n");
  slow.say("GET /he");
  std::atomic<bool> done = false;
  std::thread endless([&] {
    Client client(server.port());
    client.say(kHere);
    while (!done && client.say(std::string(4096, 'x'))) std::this_thread::sleep_for(1ms);
  });
  for (int i = 0; i < 200; ++i) CHECK(is_here(answer_to(server.port(), kHere)));
  slow.say("re HTTP/1.1\r\n\r\n");
  CHECK(is_here(slow.hear()));
  const auto begin = Clock::now();
  CHECK(silent.hear().empty());
  CHECK(seconds_since(begin) < 30);
  done = true;
  endless.join();
}

TEST_CASE("more clients than a server takes at once wait for their turn") {
  const HttpServer server("127.0.0.1", 0, test_page);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Client>(server.port()));
  CHECK(is_here(answer_to(server.port(), kHere)));
}
