#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/json_parser.h"

namespace trireme {

namespace {

using Library = nlohmann::ordered_json;

std::string rest_of(std::istream& in) { return {std::istreambuf_iterator<char>(in), {}}; }

}  // namespace

Json::Json(std::string value) : value_(std::make_unique<std::string>(std::move(value))) {}
Json::Json(Array items) : value_(std::make_unique<Array>(std::move(items))) {}

Json::Json(std::initializer_list<Json> items) {
  const auto is_member = [](const Json& item) { return item.is_array() && item.size() == 2 && item[0].is_string(); };
  if (!std::ranges::all_of(items, is_member)) {
    *this = Json(Array(items));
    return;
  }
  *this = object();
  for (const Json& item : items) (*this)[item[0].string()] = item[1];
}

Json::Json(const Json& other) : place_(other.place_) {
  std::visit(
      [this](const auto& value) {
        if constexpr (requires { value.get(); })
          value_ = std::make_unique<typename std::remove_cvref_t<decltype(value)>::element_type>(*value);
        else
          value_ = value;
      },
      other.value_);
}

Json Json::object() {
  Json json;
  json.value_ = std::make_unique<Object>();
  return json;
}

Json Json::parse(std::string_view text, const JsonLimits& limits) { return JsonParser(text, limits).parse(); }

Json Json::parse(std::istream& in, const JsonLimits& limits) { return parse(rest_of(in), limits); }

Json Json::parse_or_null(std::istream& in) { return parse_or_null(rest_of(in)); }

Json Json::parse_or_null(std::string_view text) {
  try {
    return parse(text);
  } catch (const JsonError&) {
    return {};
  }
}

namespace {

Library in_library(const Json& json, bool sorted) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_integer()) return json.is_natural() ? Library(json.get<uint64_t>()) : Library(json.get<int64_t>());
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.string();
  if (json.is_array()) {
    Library array = Library::array();
    for (const Json& item : json) array.push_back(in_library(item, sorted));
    return array;
  }
  if (json.is_null()) return nullptr;
  Library object = Library::object();
  auto& pairs = object.get_ref<Library::object_t&>();  // keys of a map are unique already: no need to search for each
  for (const auto* member : json.members_in_order(sorted)) pairs.emplace_back(member->first, in_library(member->second, sorted));
  return object;
}

}  // namespace

std::vector<const Json::Object::value_type*> Json::members_in_order(bool sorted) const {
  std::vector<const Object::value_type*> order;
  for (const auto& member : members()) order.push_back(&member);
  if (!sorted) std::ranges::sort(order, {}, [](const Object::value_type* member) { return member->second.place_; });
  return order;
}

std::string Json::dump(const JsonStyle& style) const {
  try {
    return in_library(*this, style.sorted)
        .dump(style.indent, ' ', style.ascii, style.strict ? Library::error_handler_t::strict : Library::error_handler_t::replace);
  } catch (const Library::exception& error) {
    throw JsonError(error.what());
  }
}

const std::string& Json::string() const {
  if (!is_string()) is_no("a string");
  return *std::get<std::unique_ptr<std::string>>(value_);
}
std::string& Json::string() {
  if (!is_string()) is_no("a string");
  return *std::get<std::unique_ptr<std::string>>(value_);
}
const Json::Array& Json::items() const {
  if (!is_array()) is_no("an array");
  return *std::get<std::unique_ptr<Array>>(value_);
}
Json::Array& Json::items() {
  if (!is_array()) is_no("an array");
  return *std::get<std::unique_ptr<Array>>(value_);
}
const Json::Object& Json::members() const {
  if (!is_object()) is_no("an object");
  return *std::get<std::unique_ptr<Object>>(value_);
}
Json::Object& Json::members() {
  if (!is_object()) is_no("an object");
  return *std::get<std::unique_ptr<Object>>(value_);
}

size_t Json::size() const { return is_array() ? items().size() : is_object() ? members().size() : is_null() ? 0 : 1; }

const Json* Json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  const auto at = members().find(name);
  return at == members().end() ? nullptr : &at->second;
}
Json* Json::find(std::string_view name) { return const_cast<Json*>(std::as_const(*this).find(name)); }

const Json& Json::at(std::string_view name) const {
  if (!is_object()) is_no("an object");
  const Json* const found = find(name);
  if (found == nullptr) throw JsonError("has no '" + std::string(name) + "'");
  return *found;
}
Json& Json::at(std::string_view name) { return const_cast<Json&>(std::as_const(*this).at(name)); }

Json& Json::operator[](std::string_view name) {
  if (is_null()) *this = object();
  Object& all = members();
  const auto next = all.lower_bound(name);
  if (next != all.end() && next->first == name) return next->second;
  const auto place = static_cast<uint32_t>(all.size());
  Json& added = all.emplace_hint(next, std::string(name), Json())->second;
  added.place_ = place;
  return added;
}

bool Json::add(std::string_view name, Json value) {
  const size_t before = size();
  Json& member = (*this)[name];
  if (size() == before) return false;
  member = std::move(value);
  return true;
}

void Json::erase(std::string_view name) {
  Object& all = members();
  const auto at = all.find(name);
  if (at == all.end()) return;
  for (auto& [other, value] : all) value.place_ -= value.place_ > at->second.place_;
  all.erase(at);
}

void Json::update(const Json& other) {
  for (const auto* member : other.members_in_order(false)) (*this)[member->first] = member->second;
}

Json Json::value(std::string_view name, Json otherwise) const {
  if (!is_object()) is_no("an object");
  const Json* const found = find(name);
  return found != nullptr ? *found : otherwise;
}

const Json& Json::value_or_null(std::string_view name) const {
  static const Json null;
  const Json* const found = find(name);
  return found != nullptr ? *found : null;
}

void Json::push_back(Json item) {
  if (is_null()) *this = array();
  items().push_back(std::move(item));
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

std::partial_ordering Json::order(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return std::partial_ordering::unordered;
  if (a.kind() == Kind::real || b.kind() == Kind::real) return a.as_real() <=> b.as_real();
  if (a.is_natural() != b.is_natural()) return a.is_natural() <=> b.is_natural();  // one of them is negative
  return a.is_natural() ? a.as_natural() <=> b.as_natural() : a.as_integer() <=> b.as_integer();
}

bool Json::equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return order(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.string() == b.string();
  if (a.is_array()) return a.items() == b.items();
  if (a.is_object()) return a.members() == b.members();
  return a.is_null() || a.as_boolean() == b.as_boolean();
}

void Json::is_no(const char* wanted) const {
  std::string shown = excerpt(61);
  if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
  throw JsonError(shown + " is not " + wanted);
}

std::string Json::excerpt(size_t most) const {
  std::string out;
  write_excerpt(out, most);
  return out.substr(0, most);
}

// Every call writes a character, so their nesting is as limited as the text.
void Json::write_excerpt(std::string& out, size_t most) const {
  if (out.size() >= most) return;
  const auto name = [&](std::string_view text) { out += Json(text.substr(0, most)).dump({.ascii = true}); };
  if (is_string()) {
    name(string());
  } else if (is_array()) {
    for (size_t i = 0; i < items().size() && out.size() < most; ++i) out += i == 0 ? '[' : ',', items()[i].write_excerpt(out, most);
    out += items().empty() ? "[]" : "]";
  } else if (is_object()) {
    bool first = true;
    for (const auto& [key, value] : members()) {
      if (out.size() >= most) return;
      out += std::exchange(first, false) ? '{' : ',', name(key), out += ':', value.write_excerpt(out, most);
    }
    out += first ? "{}" : "}";
  } else {
    out += dump();
  }
}

const Json& Json::item(size_t index) const {
  const Array& all = items();
  if (index >= all.size()) throw JsonError("has " + std::to_string(all.size()) + " items, none at " + std::to_string(index));
  return all[index];
}

bool Json::is_natural() const { return kind() == Kind::natural || (kind() == Kind::integer && std::get<int64_t>(value_) >= 0); }

int64_t Json::as_integer() const {
  if (const auto* real = std::get_if<double>(&value_); real != nullptr && std::trunc(*real) == *real && std::abs(*real) < 0x1p63)
    return static_cast<int64_t>(*real);
  if (const auto* natural = std::get_if<uint64_t>(&value_)) return static_cast<int64_t>(*natural);
  if (!is_integer()) is_no("an integer");
  return std::get<int64_t>(value_);
}
uint64_t Json::as_natural() const {
  const auto* natural = std::get_if<uint64_t>(&value_);
  return natural != nullptr ? *natural : static_cast<uint64_t>(as_integer());
}
double Json::as_real() const {
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  if (!is_integer()) is_no("a number");
  return is_natural() ? static_cast<double>(as_natural()) : static_cast<double>(as_integer());
}
bool Json::as_boolean() const {
  if (!is_boolean()) is_no("true or false");
  return std::get<bool>(value_);
}

}  // namespace trireme
