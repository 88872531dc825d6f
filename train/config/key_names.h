// Names of sections and keys, and advice about wrong ones.
#pragma once

#include <string>
#include <vector>

#include "train/config/keys.h"

namespace trireme {

struct Advice {
  std::string meant;  // the key that was probably meant, "train.lr"; "" if unknown
  std::string words;  // "did you mean train.lr?"; never a list
};

class KeyNames {
 public:
  bool has_section(const std::string& section) const;
  const Key* find(const std::string& section, const std::string& name) const;  // nullptr if unknown
  std::string sections() const;                                                // "kernels, parallel, ..."

  // `section` may be "", for a name that should have had one.
  Advice on_key(const std::string& section, const std::string& name) const;
  // `holds_keys`: keys follow the name, so it was meant as a section.
  Advice on_section(const std::string& name, bool holds_keys) const;

 private:
  std::vector<std::string> section_names() const;
  std::vector<std::string> names_of(const std::string& section) const;
  std::string key_named(const std::string& name) const;

  const std::vector<Key> keys_ = list_keys({});
};

}  // namespace trireme
