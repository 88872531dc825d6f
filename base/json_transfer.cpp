#include "base/json_transfer.h"

#include <algorithm>
#include <cstring>

namespace trireme {

namespace {

enum class JsonKind : char {
  null = 'n',
  no = 'f',
  yes = 't',
  integer = 'i',
  natural = 'u',
  real = 'd',
  string = 's',
  array = 'a',
  object = 'o'
};

void put_kind(std::string& out, JsonKind kind) { out += static_cast<char>(kind); }

template <class T>
void put(std::string& out, JsonKind kind, T value) {
  put_kind(out, kind);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, JsonKind kind, const std::string& text) {
  put<uint64_t>(out, kind, text.size());
  out += text;
}

// As deep as the limit of the parser that made the value.
void pack(const Json& value, std::string& out) {
  if (value.is_null()) return put_kind(out, JsonKind::null);
  if (value.is_boolean()) return put_kind(out, value == true ? JsonKind::yes : JsonKind::no);
  if (value.is_natural()) return put(out, JsonKind::natural, value.get<uint64_t>());
  if (value.is_integer()) return put(out, JsonKind::integer, value.get<int64_t>());
  if (value.is_number()) return put(out, JsonKind::real, value.get<double>());
  if (value.is_string()) return put_text(out, JsonKind::string, value.string());
  put<uint64_t>(out, value.is_array() ? JsonKind::array : JsonKind::object, value.size());
  if (value.is_array()) {
    for (const Json& item : value) pack(item, out);
    return;
  }
  for (const auto* member : value.members_in_order(false)) {
    put_text(out, JsonKind::string, member->first);
    pack(member->second, out);
  }
}

class JsonUnpacker {
 public:
  explicit JsonUnpacker(std::string_view bytes) : rest_(bytes) {}

  Json value(int depth) {
    switch (const JsonKind kind = take_kind()) {
      case JsonKind::null:
        return {};
      case JsonKind::no:
      case JsonKind::yes:
        return kind == JsonKind::yes;
      case JsonKind::integer:
        return take<int64_t>();
      case JsonKind::natural:
        return take<uint64_t>();
      case JsonKind::real:
        return take<double>();
      case JsonKind::string:
        return take_text();
      case JsonKind::array:
      case JsonKind::object:
        return container(kind, depth);
    }
    refuse();
  }
  void end() const {
    if (!rest_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw JsonError("is not JSON: its reader's result is damaged"); }

  std::string_view take(uint64_t count) {
    if (count > rest_.size()) refuse();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  JsonKind take_kind() { return static_cast<JsonKind>(take(1).front()); }
  template <class T>
  T take() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string take_text() { return std::string(take(take<uint64_t>())); }

  Json container(JsonKind kind, int depth) {
    const auto count = take<uint64_t>();
    if (depth == 0 || count > rest_.size()) refuse();  // each takes a byte or more
    Json made = kind == JsonKind::array ? Json::array() : Json::object();
    if (kind == JsonKind::array) made.items().reserve(std::min<uint64_t>(count, 1 << 20));
    for (uint64_t i = 0; i < count; ++i) {
      if (kind == JsonKind::array) {
        made.push_back(value(depth - 1));
        continue;
      }
      if (take_kind() != JsonKind::string) refuse();
      const std::string name = take_text();
      if (!made.add(name, value(depth - 1))) refuse();
    }
    return made;
  }

  std::string_view rest_;
};

}  // namespace

std::string pack_json(const Json& value) {
  std::string out;
  pack(value, out);
  return out;
}

Json unpack_json(std::string_view bytes, int depth) {
  JsonUnpacker unpacker(bytes);
  Json value = unpacker.value(depth);
  unpacker.end();
  return value;
}

}  // namespace trireme
