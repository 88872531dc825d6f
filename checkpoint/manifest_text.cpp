// Writes and parses manifest.json: one line per file and tensor, so that line tools can show and
// compare it. Version 1 had the pieces in it, with their tensors.
#include <algorithm>
#include <limits>

#include "base/json.h"
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"

namespace trireme {

namespace {

constexpr auto kFormat = "trireme checkpoint";
constexpr int64_t kVersion = 2, kWithPieces = 1;
constexpr std::string_view kHead = "{\"digest\":\"", kMiddle = "\",\n\"manifest\":", kTail = "}\n";
constexpr int kMaxDepth = 6;  // manifest, tensors, tensor, and in version 1 pieces, piece, shape
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

Json to_json(const FileEntry& file) {
  return {
      {"name", file.name}, {"bytes", file.bytes}, {"table", {file.table_at, file.table_bytes}}, {"digest", hex(file.table_digest)}};
}

Json to_json(const TensorEntry& tensor) {
  return {{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"digest", hex(tensor.digest)}};
}

Json to_json(const std::map<std::string, ChainedDigest>& records) {
  Json all = Json::object();
  for (const auto& [name, record] : records) all[name] = {{"bytes", record.bytes}, {"digest", hex(record.value)}};
  return all;
}

template <class Entry>
std::string lines_of(const std::vector<Entry>& entries) {
  std::string lines;
  for (const Entry& entry : entries) lines += (lines.empty() ? "\n" : ",\n") + to_json(entry).dump({.strict = true});
  return "[" + lines + "]";
}

int64_t integer_of(const Json& value, const std::string& where) {
  const bool fits = value.is_integer() && !(value.is_natural() && value.get<uint64_t>() > uint64_t{kLargest});
  if (!fits) throw DamagedCheckpoint(where + " is not a 64-bit integer");
  return value.get<int64_t>();
}

// A JSON object whose required values are checked when read.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("is not an object");
  }

  int64_t integer(const char* key) const { return integer_of(get(key), where_ + ": " + key); }
  std::string string(const char* key, size_t longest) const {
    const Json& value = get(key);
    if (!value.is_string() || value.string().size() > longest) fail(text(key, " is not a string of at most ", longest, " bytes"));
    return value.get<std::string>();
  }
  uint64_t digest(const char* key) const {
    const std::optional<uint64_t> value = from_hex(string(key, 16));
    if (!value) fail(std::string(key) + " is not 16 hex digits");
    return *value;
  }
  const Json& array(const char* key, size_t longest) const {
    const Json& value = get(key);
    if (!value.is_array() || value.size() > longest) fail(text(key, " is not an array of at most ", longest));
    return value;
  }
  std::vector<int64_t> integers(const char* key) const {
    std::vector<int64_t> values;
    for (const Json& value : array(key, 4)) values.push_back(integer_of(value, where_ + ": " + key));
    return values;
  }
  const Json& get(const char* key) const {
    const auto at = json_.find(key);
    if (at == nullptr) fail(std::string(key) + " is missing");
    return *at;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DamagedCheckpoint(where_ + ": " + what); }
  const Json& json_;
  std::string where_;
};

FileEntry parse_file(const Fields& fields) {
  const std::vector<int64_t> table = fields.integers("table");
  if (table.size() != 2) throw DamagedCheckpoint("table is not an offset and a length");
  return {.name = fields.string("name", 255),
          .bytes = fields.integer("bytes"),
          .table_at = table[0],
          .table_bytes = table[1],
          .table_digest = fields.digest("digest")};
}

FileEntry parse_file_of_pieces(const Fields& fields) {
  return {.name = fields.string("name", 255),
          .bytes = fields.integer("bytes"),
          .known = true,
          .pages = fields.integer("pages"),
          .pages_at = fields.integer("pages_at"),
          .pages_digest = fields.digest("pages_digest"),
          .container = fields.digest("container")};
}

TensorEntry parse_tensor(const Fields& fields) {
  TensorEntry tensor{.name = fields.string("name", 512), .shape = fields.integers("shape"), .digest = fields.digest("digest")};
  const std::string named = fields.string("dtype", 8);
  const std::optional<Dtype> dtype = dtype_named(named);
  if (!dtype) throw DamagedCheckpoint(text(tensor.name, ": dtype '", named, "' is not one of f32, bf16 and i32"));
  tensor.dtype = *dtype;
  return tensor;
}

// Adds the pieces of the last tensor to their files.
void parse_pieces(const Json& pieces, Manifest& manifest) {
  const std::string& name = manifest.tensors.back().name;
  for (const Json& each : pieces) {
    const Fields fields(each, name);
    const int64_t file = fields.integer("file");
    if (file < 0 || file >= std::ssize(manifest.files))
      throw DamagedCheckpoint(text(name, ": file ", file, " of ", manifest.files.size()));
    manifest.files[static_cast<size_t>(file)].pieces.push_back(
        {.tensor = std::ssize(manifest.tensors) - 1,
         .box = {.offset = fields.integers("offset"), .shape = fields.integers("shape")},
         .at = fields.integer("at"),
         .bytes = fields.integer("bytes"),
         .first_page = fields.integer("first_page"),
         .digest = fields.digest("digest")});
  }
}

std::map<std::string, ChainedDigest> parse_records(const Json& json) {
  std::map<std::string, ChainedDigest> records;
  if (!json.is_object() || json.size() > 64) throw DamagedCheckpoint("records is not an object of at most 64");
  for (const auto& [name, value] : json.members()) {
    const Fields record(value, "records: " + name);
    records[name] = {.bytes = record.integer("bytes"), .value = record.digest("digest")};
  }
  return records;
}

Json parse_bounded(std::string_view body) {
  try {
    return Json::parse(body, {.depth = kMaxDepth, .values = kMostManifestBytes});
  } catch (const JsonError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

// Shortens a message to one line: names in a damaged manifest may be anything.
std::string one_line(std::string message) {
  for (char& c : message)
    if (c < ' ' || c == 127) c = '?';
  return message.substr(0, 400);
}

void parse_entries(const Fields& fields, bool with_pieces, Manifest& manifest) {
  size_t i = 0;
  for (const Json& json : fields.array("files", kMostFiles)) {
    const Fields file(json, text("files[", i++, "]"));
    manifest.files.push_back(with_pieces ? parse_file_of_pieces(file) : parse_file(file));
  }
  i = 0;
  for (const Json& json : fields.array("tensors", 1 << 20)) {
    const Fields tensor(json, text("tensors[", i++, "]"));
    manifest.tensors.push_back(parse_tensor(tensor));
    if (with_pieces) parse_pieces(tensor.array("pieces", kMostPieces), manifest);
  }
}

Manifest parse_body(std::string_view body) {
  const Json json = parse_bounded(body);
  const Fields fields(json, "manifest");
  if (fields.string("format", 64) != kFormat) throw DamagedCheckpoint("is not a checkpoint's manifest");
  const int64_t version = fields.integer("version");
  if (version != kVersion && version != kWithPieces)
    throw CheckpointError(text("has format version ", version, ", this program reads versions 1 to ", kVersion));
  Manifest manifest;
  manifest.run = fields.string("run", 64);
  manifest.save = fields.string("save", 64);
  manifest.step = fields.integer("step");
  if (version == kVersion) manifest.ranks = fields.integer("ranks"), manifest.layout = fields.digest("layout");
  manifest.config = fields.string("config", 16 << 20);
  const Json& counters = fields.get("counters");
  if (!counters.is_object() || counters.size() > 4096) throw DamagedCheckpoint("counters is not an object of at most 4096");
  for (const auto& [name, value] : counters.members()) manifest.counters[name] = integer_of(value, "counters: " + name);
  if (const Json* const records = json.find("records")) manifest.records = parse_records(*records);
  parse_entries(fields, version == kWithPieces, manifest);
  check(manifest);
  if (fields.string("state_digest", 16) != state_digest(manifest.tensors, manifest.counters))
    throw DamagedCheckpoint("the state's digest does not match its tensors and counters");
  return manifest;
}

// The inner text of a manifest, after its digest was checked.
std::string_view body_of(std::string_view text) {
  constexpr size_t kAround = kHead.size() + 16 + kMiddle.size() + kTail.size();
  const bool framed = text.size() > kAround && text.starts_with(kHead) && text.ends_with(kTail) &&
                      text.substr(kHead.size() + 16, kMiddle.size()) == kMiddle;
  if (!framed) throw DamagedCheckpoint("is truncated or is not a manifest");
  const std::string_view body = text.substr(kAround - kTail.size(), text.size() - kAround);
  if (text.substr(kHead.size(), 16) != hex(digest(body.data(), static_cast<int64_t>(body.size()))))
    throw DamagedCheckpoint("does not match its digest");
  return body;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  for (const FileEntry& file : manifest.files)
    require(file.table_bytes > 0, text(file.name, " has no piece table: a manifest of version 1 is only read"));
  const Json head = {{"format", kFormat},
                     {"version", kVersion},
                     {"run", manifest.run},
                     {"save", manifest.save},
                     {"step", manifest.step},
                     {"ranks", manifest.ranks},
                     {"layout", hex(manifest.layout)},
                     {"counters", manifest.counters},
                     {"state_digest", state_digest(manifest.tensors, manifest.counters)},
                     {"config", manifest.config}};
  try {
    std::string body = head.dump({.strict = true});
    body.pop_back();  // the closing brace
    if (!manifest.records.empty()) body += ",\n\"records\":" + to_json(manifest.records).dump({.strict = true});
    body += ",\n\"files\":" + lines_of(manifest.files) + ",\n\"tensors\":" + lines_of(manifest.tensors) + "}";
    std::string text = std::string(kHead) + hex(digest(body)) + std::string(kMiddle) + body + std::string(kTail);
    if (std::ssize(text) > kMostManifestBytes)
      throw CheckpointError(
          trireme::text("a manifest of ", text.size(), " bytes, at most ", kMostManifestBytes, " are read: use fewer ranks"));
    return text;
  } catch (const JsonError& error) {
    throw CheckpointError(text("cannot write the manifest: ", error.what()));  // a config or counter that is not UTF-8
  }
}

Manifest parse_manifest(std::string_view text) { return parse_body(body_of(text)); }

std::string manifest_text(const Io& io, const std::string& directory) {
  const IoFile file = IoFile::open_to_read(io, directory + "/" + kManifestName);
  const int64_t bytes = file.size();
  if (bytes > kMostManifestBytes)
    throw DamagedCheckpoint(text(file.path(), " is ", bytes, " bytes, at most ", kMostManifestBytes, " are a manifest"));
  std::string content(static_cast<size_t>(bytes), '\0');
  file.read_at(content.data(), bytes, 0);
  return content;
}

Manifest parse_manifest_of(const std::string& directory, std::string_view content) {
  const std::string path = directory + "/" + kManifestName;
  try {
    return parse_manifest(content);
  } catch (const DamagedCheckpoint& error) {
    throw DamagedCheckpoint(path + ": " + one_line(error.what()));
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + " " + one_line(error.what()));
  }
}

Manifest load_manifest(const Io& io, const std::string& directory) {
  return parse_manifest_of(directory, manifest_text(io, directory));
}

}  // namespace trireme
