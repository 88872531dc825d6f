#include "train/cli/command_tree.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

// Commands of two words belong to one of these.
struct Group {
  std::string_view name, about;
};
constexpr std::array kGroups{
    Group{"data", "Token shards: build, import, inspect and verify them"},
    Group{"tokenizer", "Tokenizers: train one, encode and decode text"},
    Group{"checkpoint", "Checkpoints: list, verify and compare them"},
    Group{"model", "Published models: import a config, export a checkpoint"},
    Group{"bench", "Benchmarks, against measured hardware limits"},
    Group{"config", "Config files: every key as a JSON Schema"},
};

CommandNode& child(CommandNode& parent, const std::string& name) {
  const auto found = std::ranges::find(parent.children, name, &CommandNode::name);
  if (found != parent.children.end()) return *found;
  const std::string path = parent.path.empty() ? name : parent.path + " " + name;
  return parent.children.emplace_back(
      CommandNode{.name = name, .path = path, .about = {}, .footer = {}, .options = {}, .children = {}});
}

}  // namespace

std::string_view about_group(std::string_view name) {
  const auto* found = std::ranges::find(kGroups, name, &Group::name);
  require(found != kGroups.end(), text("no group of commands ", name));
  return found->about;
}

std::string_view about_program() { return "Pretrains transformers: text in, checkpoints out."; }

CommandNode command_tree(const std::vector<std::unique_ptr<Command>>& commands) {
  CommandNode root{
      .name = "trireme", .path = "", .about = std::string(about_program()), .footer = {}, .options = {}, .children = {}};
  for (const std::unique_ptr<Command>& command : commands) {
    const std::string name = command->name();
    const size_t space = name.find(' ');
    CommandNode* parent = &root;
    if (space != std::string::npos) {
      parent = &child(root, name.substr(0, space));
      parent->about = about_group(parent->name);
    }
    CommandNode& node = child(*parent, name.substr(space + 1));
    node.about = command->about();
    if (const auto footer = command->footer()) node.footer = footer();
    Options options;
    command->visit(options);
    node.options.assign(options.list().begin(), options.list().end());
    node.dashes = options.after_dashes() != nullptr || std::ranges::any_of(node.options, &Option::takes_rest);
  }
  return root;
}

}  // namespace trireme
