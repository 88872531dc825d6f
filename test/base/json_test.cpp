#include "base/json.h"

#include <limits>
#include <utility>

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
  CHECK_THAT(problem_of(std::string(1000000, '[')), ContainsSubstring("nested more than 1000 deep"));
  CHECK(problem_of("[[[1]]]", {.depth = 3}) == "accepted");
  CHECK_THAT(problem_of("[[[[1]]]]", {.depth = 3}), ContainsSubstring("nested more than 3 deep"));
  CHECK(Json::parse(R"({"a":1,"a":2})").at("a") == 2);
  CHECK(problem_of(R"({"a":1,"a":2})", {.unique_names = true}) == "repeats the name 'a'");
}

TEST_CASE("text that is not UTF-8 is replaced, or refused where that is asked for") {
  CHECK(Json("a\xff").dump() == "\"a\xef\xbf\xbd\"");
  CHECK(Json("\xc3\xbc").dump({.ascii = true}) == "\"\\u00fc\"");
  CHECK_THROWS_AS(Json("a\xff").dump({.strict = true}), JsonError);
  CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
}

}  // namespace trireme
