#include "train/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "train/config/nearest.h"

namespace trireme {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostDepth = 8;  // three levels have a meaning; deeper ones are read for the sake of good messages

// Builds a Node from yaml-cpp's events. Unlike yaml-cpp's own tree, it keeps the line of every key and
// never follows aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& path) : path_(path) {}
  const Node& root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "a second document begins; a config is one document");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { fail(mark, "anchors (&) are not used in a config"); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { fail(mark, "aliases (*) are not used in a config"); }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add({.kind = Node::Kind::null, .line = mark.line + 1}); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    const bool plain = tag.empty() || tag == "?";
    if (!plain && tag != "!") fail(mark, "tags (!) are not used in a config");
    add({.kind = plain ? Node::Kind::plain : Node::Kind::quoted, .line = mark.line + 1, .text = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, Node::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, Node::Kind::map);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw ConfigError(path_ + ":" + std::to_string(mark.line + 1) + ": " + what);
  }
  void open(const YAML::Mark& mark, Node::Kind kind) {
    if (open_.size() == kMostDepth) fail(mark, "nested too deeply; a config has sections, keys and lists");
    open_.push_back({.kind = kind, .line = mark.line + 1});
  }
  void close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }
  void add(Node node) {
    if (open_.empty())
      root_ = std::move(node);
    else
      open_.back().children.push_back(std::move(node));
  }

  const std::string& path_;
  std::vector<Node> open_;
  Node root_;
  int documents_ = 0;
};

}  // namespace

Node parse_yaml(const std::string& name, const std::string& bytes) {
  try {
    TreeBuilder builder(name);
    TextReader in(bytes);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.root();
  } catch (const YAML::Exception& e) {
    throw ConfigError(text(name, ":", e.mark.line + 1, ":", e.mark.column + 1, ": is not valid YAML: ", e.msg));
  }
}

// Reports characters that editors do not show (tabs, control characters) before yaml-cpp fails on them.
std::string read_yaml_bytes(const std::string& path) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) throw ConfigError(path + ": is a directory; name a YAML file");
  if (!std::filesystem::exists(path, unreadable)) {
    const std::string reason = unreadable ? unreadable.message() : std::strerror(ENOENT);
    std::vector<std::string> others;
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(parent.empty() ? "." : parent, unreadable))
      if (entry.path().extension() == ".yaml") others.push_back(entry.path().filename().string());
    const std::string near = nearest(std::filesystem::path(path).filename().string(), others);
    throw ConfigError(path + ": cannot be read: " + reason +
                      (near.empty() ? "" : "; did you mean " + (parent / near).string() + "?"));
  }
  std::string bytes;
  try {
    bytes = read_file(path, kMostBytes, "a config, which is a few lines of YAML");
  } catch (const DataError& problem) {
    throw ConfigError(problem.what());
  }
  int line = 1;
  bool indentation = true;
  for (const char c : bytes) {
    if (c == '\t' && indentation) throw ConfigError(text(path, ":", line, ": is indented with a tab; YAML wants spaces"));
    if (c == '\0' || (c > '\0' && c < '\t'))
      throw ConfigError(text(path, ":", line, ": holds control characters; is this a text file?"));
    indentation = c == '\n' || (indentation && c == ' ');
    line += c == '\n';
  }
  return bytes;
}

}  // namespace trireme
