#include "base/text_stream.h"

#include <new>

#include "test/catch.h"

namespace trireme {
namespace {

// Lacks memory for anything.
template <class T>
struct NoMemory {
  using value_type = T;
  NoMemory() = default;
  template <class U>
  NoMemory(const NoMemory<U>&) {}
  T* allocate(size_t) { throw std::bad_alloc(); }
  void deallocate(T*, size_t) {}
  bool operator==(const NoMemory&) const { return true; }
};
using Line = std::basic_string<char, std::char_traits<char>, NoMemory<char>>;

const std::string kLong(1000, 'a');

}  // namespace

TEST_CASE("a line for which there is no memory is not taken for the end of a text") {
  Line line;
  std::istringstream swallows(kLong + "\n");
  CHECK_FALSE(std::getline(swallows, line));
  TextReader reports(kLong + "\n");
  CHECK_THROWS_AS(std::getline(reports, line), std::bad_alloc);
}

TEST_CASE("texts end and numbers fail to be read as in any stream") {
  TextReader in("12 x\nlast");
  int64_t number = 0;
  CHECK((in >> number && number == 12));
  CHECK_FALSE(in >> number);
  in.clear();
  std::string line;
  CHECK((std::getline(in, line) && line == "x"));
  CHECK((std::getline(in, line) && line == "last"));
  CHECK_FALSE(std::getline(in, line));
  TextWriter out;
  out << 12 << ' ' << 0.5;
  CHECK(out.str() == "12 0.5");
  CHECK(out.exceptions() == std::ios::badbit);
}

}  // namespace trireme
