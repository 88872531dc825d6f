// Json: a JSON value. base/json_parser.h reads it. Writing is nlohmann/json's, hidden in json.cpp: its
// header costs every file that includes it several seconds to compile.
//
//   // JsonError: where and why it is not JSON
//   const Json entry = Json::parse(line);
//   if (const Json* text = entry.find("text")) use(text->get<std::string>());
//   // a list of pairs that begin with a string is an object
//   Json out{{"step", 12}, {"losses", losses}};
//   say(out.dump());
//
// An object keeps its members sorted by name and remembers their original order. Reading a value as
// the wrong type, or a missing member, throws JsonError.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Limits of a text that is read. Values and names together are counted: each takes at most 70 bytes
// of memory beside its text.
struct JsonLimits {
  int depth = 128;             // nesting of values, as in serde_json
  int64_t bytes = 1 << 30;     // of the text
  int64_t values = 4'000'000;  // and names
  int64_t string = 256 << 20;  // bytes of a name or a string
  bool unique_names = false;   // refuse an object that repeats a name; otherwise the last one counts
};

struct JsonStyle {
  int indent = -1;      // spaces for each level; -1: one line
  bool sorted = false;  // members by name; otherwise in their original order
  bool ascii = false;   // \u escapes for all other characters
  bool strict = false;  // JsonError for text that is not UTF-8; otherwise U+FFFD replaces it
};

template <class T>
concept JsonNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(std::same_as<bool> auto value) : value_(value) {}
  Json(std::signed_integral auto value) : value_(static_cast<int64_t>(value)) {}
  Json(std::unsigned_integral auto value) requires(!std::same_as<decltype(value), bool>) : value_(static_cast<uint64_t>(value)) {}
  Json(std::floating_point auto value) : value_(static_cast<double>(value)) {}
  Json(std::string value);
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  Json(Array items);
  // An object if every item is a pair that begins with a string, otherwise an array.
  Json(std::initializer_list<Json> items);
  template <class T>
  Json(const std::vector<T>& items) : Json(Array(items.begin(), items.end())) {}
  template <class T>
  Json(const std::map<std::string, T>& members) : Json(object()) {
    for (const auto& [name, value] : members) (*this)[name] = value;
  }
  Json(const Json& other);
  Json(Json&& other) noexcept : value_(std::exchange(other.value_, nullptr)), place_(other.place_) {}
  Json& operator=(Json other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  static Json array() { return Json(Array()); }
  static Json array(std::initializer_list<Json> items) { return Json(Array(items)); }
  static Json object();

  static Json parse(std::string_view text, const JsonLimits& limits = {});
  static Json parse(std::istream& in, const JsonLimits& limits = {});
  // Null if the text is not JSON.
  static Json parse_or_null(std::string_view text);
  static Json parse_or_null(std::istream& in);

  std::string dump(const JsonStyle& style = {}) const;
  // The beginning of what dump() writes in ASCII with sorted names, for messages.
  std::string excerpt(size_t most = 60) const;

  bool is_null() const { return kind() == Kind::null; }
  bool is_boolean() const { return kind() == Kind::boolean; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }
  bool is_number() const { return is_integer() || kind() == Kind::real; }
  bool is_integer() const { return kind() == Kind::integer || kind() == Kind::natural; }
  bool is_natural() const;  // an integer >= 0

  // Converts any other number, a boolean, a string, an array to a vector, an object to a map of
  // strings.
  template <class T>
  T get() const {
    T value{};
    read(value);
    return value;
  }
  template <class T>
  requires(!std::same_as<T, Json> && !std::is_pointer_v<T> && !std::same_as<T, char> && !std::same_as<T, std::string_view> &&
           !std::same_as<T, std::initializer_list<char>>)  // excluded: std::string could be assigned from it as well
  operator T() const {
    return get<T>();
  }
  const std::string& string() const;
  std::string& string();
  const Array& items() const;
  Array& items();
  const Object& members() const;
  Object& members();
  std::vector<const Object::value_type*> members_in_order(bool sorted) const;

  // Items of an array or members of an object; for other values 0 for null, otherwise 1.
  size_t size() const;
  bool empty() const { return size() == 0; }

  // Members of an object. Adding one turns null into an object.
  const Json* find(std::string_view name) const;  // nullptr: no such member, or not an object
  Json* find(std::string_view name);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;
  Json& at(std::string_view name);
  const Json& operator[](std::string_view name) const { return at(name); }
  Json& operator[](std::string_view name);
  const Json& operator[](const char* name) const { return at(name); }
  Json& operator[](const char* name) { return (*this)[std::string_view(name)]; }
  bool add(std::string_view name, Json value);  // false if the name exists already
  void erase(std::string_view name);
  void update(const Json& other);  // takes over all members of `other`
  // `otherwise` stands for a member that is missing, and for one that is not an integer.
  int64_t integer_or(std::string_view name, int64_t otherwise) const {
    const Json* const member = find(name);
    return member != nullptr && member->is_integer() ? member->as_integer() : otherwise;
  }
  Json value(std::string_view name, Json otherwise) const;  // a copy
  const Json& value_or_null(std::string_view name) const;   // null: no such member, or not an object

  // Items of an array. Adding one turns null into an array.
  const Json& at(std::integral auto index) const { return item(static_cast<size_t>(index)); }
  const Json& operator[](std::integral auto index) const { return item(static_cast<size_t>(index)); }
  Json& operator[](std::integral auto index) { return const_cast<Json&>(item(static_cast<size_t>(index))); }
  void push_back(Json item);
  const Json& front() const { return item(0); }
  const Json& back() const { return item(size() - 1); }
  Array::const_iterator begin() const { return items().begin(); }
  Array::const_iterator end() const { return items().end(); }
  Array::iterator begin() { return items().begin(); }
  Array::iterator end() { return items().end(); }

  // Compares numbers by value, whatever their type; other values have no order.
  friend bool operator==(const Json& a, const Json& b) { return equal(a, b); }
  friend bool operator==(const Json& a, const std::string& b) { return a.is_string() && a.string() == b; }
  friend bool operator==(const Json& a, const char* b) { return a.is_string() && a.string() == b; }
  friend bool operator==(const Json& a, std::same_as<bool> auto b) { return a.is_boolean() && a.as_boolean() == b; }
  friend bool operator==(const Json& a, JsonNumber auto b) { return equal(a, Json(b)); }
  friend bool operator==(const Json& a, std::nullptr_t) { return a.is_null(); }
  friend std::partial_ordering operator<=>(const Json& a, const Json& b) { return order(a, b); }
  friend std::partial_ordering operator<=>(const Json& a, JsonNumber auto b) { return order(a, Json(b)); }
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  enum class Kind : uint8_t { null, boolean, integer, natural, real, string, array, object };

  static bool equal(const Json& a, const Json& b);
  static std::partial_ordering order(const Json& a, const Json& b);
  [[noreturn]] void is_no(const char* wanted) const;
  const Json& item(size_t index) const;
  void write_excerpt(std::string& out, size_t most) const;

  int64_t as_integer() const;
  uint64_t as_natural() const;
  double as_real() const;
  bool as_boolean() const;

  void read(Json& to) const { to = *this; }
  void read(bool& to) const { to = as_boolean(); }
  void read(JsonNumber auto& to) const {
    using T = std::remove_reference_t<decltype(to)>;
    if constexpr (std::floating_point<T>)
      to = static_cast<T>(as_real());
    else if constexpr (std::signed_integral<T>)
      to = static_cast<T>(as_integer());
    else
      to = static_cast<T>(as_natural());
  }
  void read(std::string& to) const { to = string(); }
  template <class T>
  void read(std::vector<T>& to) const {
    for (const Json& item : items()) to.push_back(item.get<T>());
  }
  template <class T>
  void read(std::map<std::string, T>& to) const {
    for (const auto& [name, value] : members()) to.emplace(name, value.template get<T>());
  }

  Kind kind() const { return static_cast<Kind>(value_.index()); }

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::unique_ptr<std::string>, std::unique_ptr<Array>,
               std::unique_ptr<Object>>
      value_;           // alternatives in the order of Kind
  uint32_t place_ = 0;  // position among the members of the object that holds it; assignment keeps it
};

}  // namespace trireme
