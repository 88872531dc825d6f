#include "train/config/key_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "train/config/aliases.h"
#include "train/config/nearest.h"

namespace trireme {
namespace {

constexpr const char* kHelp = "trireme train --help lists all keys";

struct SectionAlias {
  std::string_view theirs, ours;
};
constexpr std::array kSectionAliases{
    SectionAlias{"optimizer", "train"},      SectionAlias{"optim", "train"},
    SectionAlias{"training", "train"},       SectionAlias{"trainer", "train"},
    SectionAlias{"lr_scheduler", "train"},   SectionAlias{"scheduler", "train"},
    SectionAlias{"dataset", "data"},         SectionAlias{"datasets", "data"},
    SectionAlias{"dataloader", "data"},      SectionAlias{"parallelism", "parallel"},
    SectionAlias{"distributed", "parallel"}, SectionAlias{"mesh", "parallel"},
    SectionAlias{"network", "model"},        SectionAlias{"architecture", "model"},
    SectionAlias{"transformer", "model"},    SectionAlias{"checkpointing", "checkpoint"},
    SectionAlias{"ckpt", "checkpoint"},      SectionAlias{"compute", "kernels"},
    SectionAlias{"hardware", "kernels"},
};

Advice did_you_mean(const std::string& key, const std::string& note = "") {
  return {.meant = key, .words = "did you mean " + key + (note.empty() ? "" : " (" + note + ")") + "?"};
}

Advice advice_of(const Alias& alias) {
  if (alias.key.empty()) return {.meant = "", .words = alias.note};
  return did_you_mean(alias.key, alias.note);
}

}  // namespace

bool KeyNames::has_section(const std::string& section) const {
  return std::ranges::any_of(keys_, [&](const Key& key) { return key.section == section; });
}

const Key* KeyNames::find(const std::string& section, const std::string& name) const {
  const auto found = std::ranges::find_if(keys_, [&](const Key& key) { return key.section == section && key.name == name; });
  return found == keys_.end() ? nullptr : &*found;
}

std::vector<std::string> KeyNames::section_names() const {
  std::vector<std::string> names;
  for (const Key& key : keys_)
    if (names.empty() || names.back() != key.section) names.push_back(key.section);
  return names;
}

std::string KeyNames::sections() const {
  std::string line;
  for (const std::string& name : section_names()) line += (line.empty() ? "" : ", ") + name;
  return line;
}

std::vector<std::string> KeyNames::names_of(const std::string& section) const {
  std::vector<std::string> names;
  for (const Key& key : keys_)
    if (key.section == section) names.push_back(key.name);
  return names;
}

// The key of this name in any section, with or without it; "" if there is none. Of two, the one with a single value.
std::string KeyNames::key_named(const std::string& name) const {
  for (const bool list : {false, true})
    for (const Key& key : keys_)
      if ((key.name == name || key.full() == name) && key.type.starts_with("a list") == list) return key.full();
  return "";
}

// An alias first, since it is exact; then near names of the section, then names of other sections.
Advice KeyNames::on_key(const std::string& section, const std::string& name) const {
  if (section.empty())
    if (const std::string full = key_named(name); !full.empty()) return did_you_mean(full);
  if (const std::optional<Alias> alias = find_alias(name)) return advice_of(*alias);
  if (const std::string near = nearest(name, names_of(section)); !near.empty()) return did_you_mean(section + "." + near);
  if (const std::string full = key_named(name); !full.empty()) return did_you_mean(full);
  if (const std::optional<Alias> alias = nearest_alias(name)) return advice_of(*alias);
  return {.meant = "", .words = kHelp};
}

Advice KeyNames::on_section(const std::string& name, bool holds_keys) const {
  if (const std::string near = nearest(name, section_names()); !near.empty())
    return {.meant = "", .words = "did you mean " + near + "?"};
  const auto* const alias = std::ranges::find(kSectionAliases, name, &SectionAlias::theirs);
  if (holds_keys && alias != kSectionAliases.end()) return {.meant = "", .words = "did you mean " + std::string(alias->ours) + "?"};
  if (const Advice advice = on_key("", name); !holds_keys && advice.words != kHelp) return advice;
  return {.meant = "", .words = "there are " + sections()};
}

}  // namespace trireme
