#include "train/cli/chat_form.h"

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"
#include "train/hub/exported_chat_template.h"

namespace trireme {
namespace {

std::string text_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The template of a published model, a program in jinja; "" without one.
std::string published_template(const std::string& directory) {
  if (std::string alone = text_in(directory + "/chat_template.jinja"); !alone.empty()) return alone;
  const Json config = Json::parse_or_null(text_in(directory + "/tokenizer_config.json"));
  const Json* written = config.is_object() ? config.find("chat_template") : nullptr;
  return written == nullptr ? "" : written->is_string() ? written->get<std::string>() : written->dump();
}

// The form whose markers a template writes; "": none that is known here.
std::string resembled(const std::string& jinja) {
  const auto has = [&](const char* marker) { return jinja.find(marker) != std::string::npos; };
  if (has("<|im_start|>")) return "chatml";
  if (has("<|start_header_id|>")) return "llama3";
  if (has("### Instruction:")) return "alpaca";
  // Others use its markers with other ends of a turn.
  return jinja == jinja_of("trireme", *make_byte_tokenizer()) ? "trireme" : "";
}

}  // namespace

std::string find_chat_form(const WeightSource& source) {
  if (std::string name = chat_template_of_data(source.config.data.train); !name.empty()) return name;
  const std::string& published = source.config.train.init_from;
  if (std::string name = published.empty() ? "" : resembled(published_template(published)); !name.empty()) return name;
  throw ConfigError(source.directory() +
                    ": has no chat template that is known here: neither its data nor its directory names one; choose it by "
                    "--chat-template trireme, chatml, llama3 or alpaca, or use `trireme sample`");
}

}  // namespace trireme
