// Writes and parses manifest.json: one line per file and tensor, so that line tools can show and
// compare it.
#include <algorithm>
#include <limits>

#include "base/json.h"
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"

namespace trireme {

namespace {

constexpr auto kFormat = "trireme checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::string_view kHead = "{\"digest\":\"", kMiddle = "\",\n\"manifest\":", kTail = "}\n";
constexpr int kMaxDepth = 6;  // manifest, tensors, tensor, pieces, piece, shape
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

Json to_json(const FileEntry& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"pages", file.pages},
          {"pages_at", file.pages_at},
          {"pages_digest", hex(file.pages_digest)},
          {"container", hex(file.container)}};
}

Json to_json(const TensorEntry& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces)
    pieces.push_back({{"file", piece.file},
                      {"offset", piece.box.offset},
                      {"shape", piece.box.shape},
                      {"at", piece.at},
                      {"bytes", piece.bytes},
                      {"first_page", piece.first_page},
                      {"digest", hex(piece.digest)}});
  return {{"name", tensor.name},
          {"dtype", name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"digest", hex(tensor.digest)},
          {"pieces", pieces}};
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

Dtype parse_dtype(const std::string& name, const std::string& tensor) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32})
    if (name == name_of(dtype)) return dtype;
  throw DamagedCheckpoint(text(tensor, ": dtype '", name, "' is not one of f32, bf16 and i32"));
}

FileEntry parse_file(const Json& json, size_t i) {
  const Fields fields(json, text("files[", i, "]"));
  return {.name = fields.string("name", 255),
          .bytes = fields.integer("bytes"),
          .pages = fields.integer("pages"),
          .pages_at = fields.integer("pages_at"),
          .pages_digest = fields.digest("pages_digest"),
          .container = fields.digest("container")};
}

TensorEntry parse_tensor(const Json& json, size_t i) {
  const Fields fields(json, text("tensors[", i, "]"));
  TensorEntry tensor{
      .name = fields.string("name", 512), .shape = fields.integers("shape"), .digest = fields.digest("digest"), .pieces = {}};
  tensor.dtype = parse_dtype(fields.string("dtype", 8), tensor.name);
  for (const Json& each : fields.array("pieces", kMostPieces)) {
    const Fields piece(each, tensor.name);
    tensor.pieces.push_back({.file = piece.integer("file"),
                             .box = {.offset = piece.integers("offset"), .shape = piece.integers("shape")},
                             .at = piece.integer("at"),
                             .bytes = piece.integer("bytes"),
                             .first_page = piece.integer("first_page"),
                             .digest = piece.digest("digest")});
  }
  return tensor;
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

Manifest parse_unchecked(std::string_view body, std::string& digest) {
  const Json json = parse_bounded(body);
  const Fields fields(json, "manifest");
  if (fields.string("format", 64) != kFormat) throw DamagedCheckpoint("is not a checkpoint's manifest");
  if (const int64_t version = fields.integer("version"); version != kVersion)
    throw CheckpointError(text("has format version ", version, ", this program reads version ", kVersion));
  Manifest manifest;
  manifest.run = fields.string("run", 64);
  manifest.save = fields.string("save", 64);
  manifest.step = fields.integer("step");
  manifest.config = fields.string("config", 16 << 20);
  const Json& counters = fields.get("counters");
  if (!counters.is_object() || counters.size() > 4096) throw DamagedCheckpoint("counters is not an object of at most 4096");
  for (const auto& [name, value] : counters.members()) manifest.counters[name] = integer_of(value, "counters: " + name);
  size_t i = 0;
  for (const Json& file : fields.array("files", 1 << 20)) manifest.files.push_back(parse_file(file, i++));
  i = 0;
  for (const Json& tensor : fields.array("tensors", 1 << 20)) manifest.tensors.push_back(parse_tensor(tensor, i++));
  if (const Json* const records = json.find("records")) manifest.records = parse_records(*records);
  digest = fields.string("state_digest", 16);
  return manifest;
}

Manifest parse_body(std::string_view body) {
  std::string digest;
  const Manifest manifest = parse_unchecked(body, digest);
  check(manifest);
  if (digest != state_digest(manifest.tensors, manifest.counters))
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
  const Json head = {{"format", kFormat},
                     {"version", kVersion},
                     {"run", manifest.run},
                     {"save", manifest.save},
                     {"step", manifest.step},
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
      throw CheckpointError(trireme::text("a manifest of ", text.size(), " bytes, at most ", kMostManifestBytes,
                                          " are read: use fewer ranks, or a lower parallel.zero"));
    return text;
  } catch (const JsonError& error) {
    throw CheckpointError(text("cannot write the manifest: ", error.what()));  // a config or counter that is not UTF-8
  }
}

Manifest parse_manifest(std::string_view text) { return parse_body(body_of(text)); }

Manifest parse_part(const std::string& text) {
  std::string digest;
  return parse_unchecked(body_of(text), digest);
}

std::string manifest_text(const Io& io, const std::string& directory) {
  const IoFile file = IoFile::open_to_read(io, directory + "/" + kManifestName);
  const int64_t bytes = file.size();
  if (bytes > kMostManifestBytes)
    throw DamagedCheckpoint(text(file.path(), " is ", bytes, " bytes, at most ", kMostManifestBytes, " are a manifest"));
  std::string content(static_cast<size_t>(bytes), '\0');
  file.read_at(content.data(), bytes, 0);
  return content;
}

Manifest load_manifest(const Io& io, const std::string& directory) {
  const std::string path = directory + "/" + kManifestName, content = manifest_text(io, directory);
  try {
    return parse_manifest(content);
  } catch (const DamagedCheckpoint& error) {
    throw DamagedCheckpoint(path + ": " + one_line(error.what()));
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + " " + one_line(error.what()));
  }
}

}  // namespace trireme
