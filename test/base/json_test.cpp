#include "base/json.h"

#include <limits>
#include <utility>

#include "base/json_parser.h"
#include "test/catch.h"

namespace trireme {
namespace {

std::string problem_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, limits);
    return "accepted";
  } catch (const JsonError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("JSON that is parsed and written is the same text, in the order of its members") {
  for (const std::string text :
       {R"({"z":1,"a":[true,false,null,-7,18446744073709551615,-9223372036854775808,0.5,1e+300,"x"],"m":{"y":{},"b":[]}})",
        R"("a \"quoted\" line\nand ünïcödé")", R"([])", R"(0)", R"([[[["deep"]]]])"}) {
    CHECK(Json::parse(text).dump() == text);
    CHECK(Json::parse(Json::parse(text).dump({.indent = 2})) == Json::parse(text));
  }
  CHECK(Json::parse(R"({"z":1,"a":{"y":2,"b":3}})").dump({.sorted = true}) == R"({"a":{"b":3,"y":2},"z":1})");
}

TEST_CASE("lists of pairs that begin with a string are objects, other lists are arrays") {
  const Json json{{"b", 1}, {"a", {1, 2, 3}}, {"c", {{"x", "y"}}}, {"d", {"x", "y"}}, {"e", nullptr}};
  CHECK(json.dump() == R"({"b":1,"a":[1,2,3],"c":{"x":"y"},"d":["x","y"],"e":null})");
  CHECK(Json{1, "two"}.dump() == R"([1,"two"])");
  CHECK(Json(std::vector<int64_t>{1, 2}).dump() == "[1,2]");
  CHECK(Json(std::map<std::string, bool>{{"b", true}, {"a", false}}).dump() == R"({"a":false,"b":true})");
}

TEST_CASE("members keep their order when they are assigned, copied, moved and removed") {
  Json json;
  json["c"] = 1;
  json["a"]["inner"] = "x";
  json["b"].push_back(2);
  json["c"] = json["a"]["inner"];
  CHECK_FALSE(json.add("a", 5));
  CHECK(json.dump() == R"({"c":"x","a":{"inner":"x"},"b":[2]})");
  Json copy = json, moved = std::move(json);
  CHECK(copy == moved);
  CHECK(copy.dump() == moved.dump());
  copy.erase("c");
  copy["d"] = std::move(moved);
  CHECK(copy.dump() == R"({"a":{"inner":"x"},"b":[2],"d":{"c":"x","a":{"inner":"x"},"b":[2]}})");
  copy = copy["d"]["b"];  // of itself
  CHECK(copy.dump() == "[2]");
  Json to{{"x", 1}, {"y", 2}};
  to.update({{"z", 3}, {"x", 4}});
  CHECK(to.dump() == R"({"x":4,"y":2,"z":3})");
}

TEST_CASE("JSON numbers are compared by value, and read as what they are") {
  constexpr auto kMost = std::numeric_limits<uint64_t>::max();
  CHECK(Json(1) == Json(1u));
  CHECK(Json(1) == 1.0);
  CHECK(Json(-1) != Json(kMost));
  CHECK(Json(-1) < Json(kMost));
  CHECK(Json(kMost) > 3);
  CHECK(Json("1") != 1);
  CHECK_FALSE(Json("1") < 1);
  CHECK(Json(true) != 1);
  CHECK(Json::parse("3.0").get<int64_t>() == 3);
  CHECK(Json::parse("7").get<double>() == 7);
  const std::string word = Json("word");
  const std::vector<int64_t> numbers = Json{1, 2, 3};
  CHECK(word == "word");
  CHECK(numbers == std::vector<int64_t>{1, 2, 3});
  CHECK_THROWS_WITH(Json::parse("3.5").get<int64_t>(), "3.5 is not an integer");
  CHECK_THROWS_WITH(Json::parse("1e300").get<int64_t>(), ContainsSubstring("is not an integer"));
  CHECK_THROWS_WITH(Json("x").get<double>(), "\"x\" is not a number");
  CHECK_THROWS_WITH(Json(1).get<bool>(), "1 is not true or false");
}

TEST_CASE("a JSON member that is missing, or a value of another kind, is an error with its name") {
  const Json json{{"list", {1, 2}}, {"text", "x"}};
  CHECK(json.find("none") == nullptr);
  CHECK(json.at("text").find("none") == nullptr);
  CHECK(json.value("none", 5) == 5);
  CHECK_THROWS_WITH(json.at("none"), "has no 'none'");
  CHECK_THROWS_WITH(json["list"][2], "has 2 items, none at 2");
  CHECK_THROWS_WITH(json["list"].string(), "[1,2] is not a string");
  CHECK_THROWS_WITH(json["text"].at("x"), "\"x\" is not an object");
  CHECK_THROWS_WITH(json["text"].items(), "\"x\" is not an array");
}

TEST_CASE("text that is not JSON, too deep or twice the same name is refused") {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1}x", "nul", "\"\xff\"", "\"\\ud800\"", "01", "NaN"}) {
    CAPTURE(text);
    CHECK_THAT(problem_of(text), ContainsSubstring("is not JSON: "));
    CHECK(Json::parse_or_null(text).is_null());
  }
  CHECK_THAT(problem_of(std::string(1000000, '[')), ContainsSubstring("byte 129: nested more than 128 deep"));
  CHECK(problem_of("[[[1]]]", {.depth = 3}) == "accepted");
  CHECK_THAT(problem_of("[[[[1]]]]", {.depth = 3}), ContainsSubstring("nested more than 3 deep"));
  CHECK(Json::parse(R"({"a":1,"a":2})").at("a") == 2);
  CHECK(problem_of(R"({"a":1,"a":2})", {.unique_names = true}) == "repeats the name 'a' at byte 8");
}

TEST_CASE("each limit of a JSON text is refused by name, with the place, however large the text is") {
  const auto repeated = [](const std::string& unit, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += unit;
    return text;
  };
  for (const char* open : {"[", "{\"a\":", "[{\"a\":[", "[[],"}) {
    CAPTURE(open);
    CHECK_THAT(problem_of(repeated(open, 1000000)), ContainsSubstring(": nested more than 128 deep"));
  }
  const std::string wide = "[" + repeated("0,", 3000000) + "0]", objects = "{" + repeated("\"a\":{},", 999999) + "\"b\":0}";
  CHECK(problem_of(wide) == "accepted");
  CHECK(problem_of(wide, {.values = 1000}) == "is not JSON: byte 2000: has more than 1000 names and values");
  CHECK(problem_of(objects) == "accepted");
  CHECK(problem_of(objects, {.values = 1000}) == "is not JSON: byte 3499: has more than 1000 names and values");
  const std::string longer = "\"" + std::string(5000000, 'x') + "\"";
  CHECK(problem_of(longer) == "accepted");
  CHECK(problem_of(longer, {.string = 100}) == "is not JSON: byte 1: a name or string has more than 100 bytes");
  CHECK(problem_of("{" + longer + ":1}", {.string = 100}) == "is not JSON: byte 2: a name or string has more than 100 bytes");
  CHECK(problem_of("[1,\n2]", {.bytes = 5}) == "is not JSON: byte 6 (line 2): has more than 5 bytes");
  CHECK_THAT(problem_of("[" + std::string(100000, '1') + "]"), ContainsSubstring("byte 2: a number has more than 1000 characters"));
}

TEST_CASE("mistakes in a JSON text are named with their byte and line") {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"a\" 1}", "byte 6: ':' is expected"},
      {"{\"a\":1,}", "byte 8: a name in quotes is expected"},
      {"{1:2}", "byte 2: a name in quotes is expected"},
      {"[1 2]", "byte 4: ',' or ']' is expected"},
      {"[\n1,\n}", "byte 6 (line 3): a value is expected, not '}'"},
      {"[1", "byte 3: ',' or ']' is expected"},
      {"[1,", "byte 4: the text ends where a value is expected"},
      {"\"a", "byte 3: the text ends in a string"},
      {"\"a\nb\"", "byte 3: a string holds a control character that is not escaped"},
      {"\"\\x\"", "byte 3: an escape is expected"},
      {"\"\\u12g4\"", "byte 4: four hexadecimal digits are expected"},
      {"\"\\udc00\"", "half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "the other half of a surrogate pair"},
      {"-", "byte 2: a digit is expected"},
      {"1.", "byte 3: a digit is expected"},
      {"1e+", "byte 4: a digit is expected"},
      {"1e999", "byte 1: the number 1e999 is too large"},
      {"true false", "byte 6: the text should end here"},
      {"\x1b[2J", "byte 1: a value is expected, not '\\x1b'"}};
  for (const auto& [text, problem] : cases) {
    CAPTURE(text);
    CHECK_THAT(problem_of(text), ContainsSubstring(problem));
  }
  CHECK(Json::parse("\"\\u00fc\\ud83d\\udea3\\/\"") == "\u00fc\U0001F6A3/");
  CHECK(Json::parse("\xef\xbb\xbf [1e-400, -0, 123456789012345678901234567890]")[2] == 123456789012345678901234567890.0);
}

TEST_CASE("members are handed over one by one, and an excerpt is as long as it is asked to be") {
  std::string seen;
  const std::string text = R"({"a":1,"b":{"x":[1,{"y":2}]},"c":[],"a":3})";
  JsonParser(text, {}).parse_members([&](const std::string& name, const Json& value) { seen += name + value.dump() + " "; });
  CHECK(seen == R"(a1 b{"x":[1,{"y":2}]} c[] a3 )");
  CHECK_THROWS_WITH(JsonParser("[]", {}).parse_members([](const std::string&, const Json&) {}),
                    "is not JSON: byte 1: an object is expected");
  const Json value = Json::parse(text);
  CHECK(value.excerpt(1000) == value.dump({.sorted = true}));
  CHECK(value.excerpt(7) == value.dump({.sorted = true}).substr(0, 7));
  CHECK(Json(std::string(1000, '\x1b')).excerpt(8) == "\"\\u001b\\");
}

TEST_CASE("text that is not UTF-8 is replaced, or refused where that is asked for") {
  CHECK(Json("a\xff").dump() == "\"a\xef\xbf\xbd\"");
  CHECK(Json("\xc3\xbc").dump({.ascii = true}) == "\"\\u00fc\"");
  CHECK_THROWS_AS(Json("a\xff").dump({.strict = true}), JsonError);
  CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
}

}  // namespace trireme
