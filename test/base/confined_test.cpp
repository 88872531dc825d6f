#include "base/confined.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "base/error.h"
#include "base/json_transfer.h"
#include "test/catch.h"

namespace trireme {
namespace {

bool is_confined() { return confinement().find("of its own") != std::string::npos; }
bool has(const char* part) { return confinement().find(part) != std::string::npos; }

std::string outcome(const std::function<std::string()>& work, const ConfinedLimits& limits = {}) {
  try {
    return "result: " + run_confined("x.json", work, limits);
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("confined work returns its bytes, and its errors keep their words") {
  CHECK(outcome([] { return std::string(); }) == "result: ");
  const std::string large(3000000, 'x');
  CHECK(outcome([&] { return large; }) == "result: " + large);
  CHECK(outcome([]() -> std::string { throw DataError("x.json: is damaged"); }) == "x.json: is damaged");
}

TEST_CASE("signals that ask the program to stop, and reach its whole group, do not end confined work") {
  if (!is_confined()) {
    WARN("skipped: not confined under a sanitizer");
    return;
  }
  CHECK(outcome([] {
          for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) raise(signal);
          return std::string("whole");
        }) == "result: whole");
}

TEST_CASE("work that crashes, does not end or takes all memory ends its own process alone") {
  if (!is_confined()) {
    WARN("skipped: not confined under a sanitizer");
    return;
  }
  CHECK(outcome([] { return raise(SIGSEGV), std::string(); }) ==
        "x.json: its reader ended by signal 11 (Segmentation fault): the file is refused");
  CHECK_THAT(outcome(
                 [] {
                   for (volatile int i = 0;;) i = i + 1;
                   return std::string();
                 },
                 {.seconds = 1}),
             ContainsSubstring("x.json: its reader ended by signal 24"));
  CHECK(outcome(
            [] {
              std::vector<std::string> all;
              while (true) all.emplace_back(1 << 20, 'x');
              return all.back();
            },
            {.memory = 64 << 20}) == "needs more memory than its reader is given");
  CHECK_THAT(outcome([] { return std::string(1 << 20, 'x'); }, {.result = 1000}), ContainsSubstring("x.json: its reader ended"));
}

TEST_CASE("confined work has no files and starts nothing") {
  if (!is_confined() || !has("seccomp")) {
    WARN("skipped: no seccomp here");
    return;
  }
  const std::string killed = "x.json: its reader ended by signal 31 (Bad system call): the file is refused";
  CHECK(outcome([] { return std::to_string(open("/etc/passwd", O_RDONLY)); }) == killed);
  CHECK(outcome([] { return std::to_string(unlink("/nowhere")); }) == killed);
  CHECK(outcome([] { return std::to_string(fork()); }) == killed);
}

TEST_CASE("a JSON value crosses as it is, and damaged bytes of one are refused") {
  const std::string text = R"({"z":[1,-2,18446744073709551615,0.5,true,false,null,"x"],"a":{"b":{},"c":[]},"":"\n"})";
  const Json value = Json::parse(text);
  const std::string packed = pack_json(value);
  CHECK(unpack_json(packed, 128).dump() == text);
  CHECK_THROWS_AS(unpack_json(packed, 1), JsonError);
  for (size_t i = 0; i < packed.size(); ++i) CHECK_THROWS_AS(unpack_json(packed.substr(0, i), 128), JsonError);
  CHECK_THROWS_AS(unpack_json(packed + "n", 128), JsonError);
  std::string huge = "a";
  huge.append(8, '\xff');
  CHECK_THROWS_AS(unpack_json(huge, 128), JsonError);
}

}  // namespace trireme
