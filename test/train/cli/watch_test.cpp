// watch and report, as a user calls them.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"

using namespace trireme;

namespace {

// The body of an answer; empty if there is none.
std::string fetched(int port, const std::string& path) {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (send(file, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char bytes[4096];
      for (ssize_t n; (n = recv(file, bytes, sizeof bytes, 0)) > 0;) answer.append(bytes, static_cast<size_t>(n));
    }
  }
  close(file);
  const size_t head = answer.find("\r\n\r\n");
  return head == std::string::npos ? "" : answer.substr(head + 4);
}

int unused_port() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(file, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(file);
  return ntohs(address.sin_port);
}

// Names and sizes of all files of a directory, with the times of their last change.
std::string contents_of(const std::string& directory) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    files.insert(entry.path().string() + " " + std::to_string(entry.last_write_time().time_since_epoch().count()));
  std::string all;
  for (const std::string& file : files) all += file + "\n";
  return all;
}

}  // namespace

TEST_CASE("watch and report read a finished run and leave it as it is") {
  const Workplace place;
  succeed(place.train({}));
  const std::string run = place.scratch / "runs/tiny", before = contents_of(run);
  const Json last = place.metrics("tiny").back();

  const Ended text = run_trireme(place.scratch.path(), {"watch", run, "--text"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out,
             ContainsSubstring("tiny: finished") && ContainsSubstring("20/20") && ContainsSubstring("saved       step 20"));
  const Ended two = run_trireme(place.scratch.path(), {"watch", run, run, "--text", "--ascii"});
  CHECK(count_of(two.out, "tiny: finished") == 2);
  const Ended json = run_trireme(place.scratch.path(), {"watch", run, "--json", "-"});
  REQUIRE(json.code == 0);
  const Json seen = Json::parse(json.out)["runs"][0];
  CHECK(seen["state"] == "finished");
  CHECK(seen["step"] == 20);
  CHECK(seen["steps"] == 20);
  CHECK(seen["checkpoints"].size() > 0);
  CHECK(seen["checkpoints"][0]["problem"].is_null());
  CHECK(seen["memory"].size() == 5);
  CHECK(seen["starts"].size() == 1);
  CHECK(seen["curves"]["loss"]["bins"].size() == 20);

  const std::string names = read_text(TRIREME_SOURCE "/docs/json.md");
  for (const auto& [name, value] : seen.members()) {
    INFO("docs/json.md: " << name);
    CHECK_THAT(names, ContainsSubstring("`" + name + "`"));
  }

  const Ended report = run_trireme(place.scratch.path(), {"report", run, "--output", "made/run.html"});
  CHECK(report.code == 0);
  CHECK_THAT(read_text(place.scratch / "made/run.html"), ContainsSubstring("<h2>Data</h2>") && ContainsSubstring("shards/train-00000.h5, digest "));
  CHECK(contents_of(run) == before);
}

TEST_CASE("a directory of something else is refused by watch and report") {
  const Scratch scratch;
  for (const char* command : {"watch", "report"}) {
    const Ended ended = run_trireme(scratch.path(), {command, scratch.path()});
    CHECK(ended.code == 3);
    CHECK_THAT(ended.err, ContainsSubstring("is not the directory of a run") && ContainsSubstring("name runs/NAME"));
    CHECK(count_of(ended.err, "\n") == 1);
  }
  CHECK(run_trireme(scratch.path(), {"watch", "absent", "--once"}).code == 2);  // --once is for --text
}

TEST_CASE("watch serves the page and each run as JSON until Ctrl-C") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "a"), std::filesystem::create_directory(scratch / "b");
  write_text(scratch / "a/metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
  write_text(scratch / "b/metrics.jsonl", "");
  const int port = unused_port();
  Process watch(scratch.path(), {"watch", "a", "b", "--port", std::to_string(port)});
  std::string page;
  for (const auto begin = Clock::now(); page.empty() && seconds_since(begin) < 60 && watch.running();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    page = fetched(port, "/");
  }
  REQUIRE_THAT(page, ContainsSubstring("<!doctype html>"));
  CHECK(Json::parse(fetched(port, "/runs"))["runs"].size() == 2);
  const Json first = Json::parse(fetched(port, "/run/0/"));
  CHECK(first["last"]["loss"] == 2.5);
  std::ofstream(scratch / "a/metrics.jsonl", std::ios::app) << "{\"step\": 2, \"loss\": 2.25}\n";
  const Json second = Json::parse(fetched(port, "/run/0/" + first["next"].string()));
  CHECK(second["last"]["loss"] == 2.25);
  CHECK(second["whole"] == false);
  CHECK(Json::parse(fetched(port, "/run/1"))["step"] == 0);
  for (const char* path : {"/run/2", "/run/x", "/run/-1", "/run/99999999999999999999"})
    CHECK(fetched(port, path) == "no such run\n");
  CHECK(fetched(port, "/../etc/passwd") == "not here; see /\n");
  const Ended other = run_trireme(scratch.path(), {"watch", "a", "--port", std::to_string(port)});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("--port " + std::to_string(port)) && ContainsSubstring("Address already in use"));
  watch.signal(SIGINT);
  const Ended ended = watch.wait();
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("http://127.0.0.1:" + std::to_string(port) + "/"));
}
