#include "train/cli/chat_form.h"

#include "train/hub/exported_chat_template.h"

namespace trireme {
std::string find_chat_form(const WeightSource& source) {
  if (std::string name = chat_template_of_data(source.config.data.train).name; !name.empty()) return name;
  const std::string& published = source.config.train.init_from;
  if (std::string name = published.empty() ? "" : published_chat_form(published); !name.empty()) return name;
  throw ConfigError(source.directory() +
                    ": has no chat template that is known here: neither its data nor its directory names one; choose it by "
                    "--chat-template trireme, chatml, llama3 or alpaca, or use `trireme sample`");
}

}  // namespace trireme
