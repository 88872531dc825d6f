#include "train/cli/chat_form.h"

#include "train/hub/exported_chat_template.h"
#include "train/telemetry/log.h"

namespace trireme {
std::string find_chat_form(const WeightSource& source) {
  const DataChatTemplate of_data = chat_template_of_data(source.config.data.train);
  if (!of_data.name.empty()) return of_data.name;
  const std::string unknown =
      of_data.problem.empty() ? "" : "the chat template of the training data is not known: " + of_data.problem;
  const std::string& published = source.config.train.init_from;
  if (std::string name = published.empty() ? "" : published_chat_form(published); !name.empty()) {
    if (!unknown.empty()) complain(std::string(text(unknown, "; taking that of ", published, "; --chat-template names another")));
    return name;
  }
  throw ConfigError(source.directory() + ": has no chat template that is known here: neither its data nor its directory names one" +
                    (unknown.empty() ? "" : " (" + unknown + ")") +
                    "; choose it by --chat-template trireme, chatml, llama3 or alpaca, or use `trireme sample`");
}

}  // namespace trireme
