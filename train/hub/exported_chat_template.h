// The chat template of an exported model: a program in Jinja that writes conversations as ChatTemplate does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "train/hub/published_config.h"

namespace trireme {

// The template of training data: its name in the first shard that has one.
struct DataChatTemplate {
  std::string name{};     // "": without one, or not known
  std::string problem{};  // why it is not known: a shard is gone or damaged, or this version lacks the template
};
DataChatTemplate chat_template_of_data(const std::vector<std::string>& inputs);

// The form that resembles the template of a published or exported model: its chat_template.jinja, or the template in its
// tokenizer_config.json; "" if there is none, or none that is known here.
std::string published_chat_form(const std::string& directory);

// Jinja that renders one of ChatTemplate's forms, character by character. llama3 begins with <|begin_of_text|> only if it is a
// special token of the tokenizer. ConfigError for an unknown name.
std::string jinja_of(const std::string& name, const Tokenizer& tokenizer);

// The template that an export gets.
struct ChosenChatTemplate {
  std::string name{};                    // of the form, of a file, or "none"; "": the template that comes with the tokenizer stays
  std::string jinja{};                   // "": without one
  std::optional<int32_t> end_of_turn{};  // a special token that ends an answer; may be the end_of_document
  std::string warning{};                 // why the template of the data is not known; "": it is, or another was chosen
};

// `choice` is the name of a form, the path of a Jinja file, "none", or "" for the form of the data. `tokenizer` is a path, and ""
// or "none" without one, which has no template. ConfigError if `choice` is neither a name nor a file.
ChosenChatTemplate choose_chat_template(const std::string& choice, const std::vector<std::string>& data,
                                        const std::string& tokenizer);

// Answers end at the template's token, too: adds it to `tokens` and to OUTPUT/generation_config.json, if that is there.
void add_end_of_turn(const ChosenChatTemplate& chosen, const std::string& output, SpecialTokens& tokens);

// Puts the template into OUTPUT/tokenizer_config.json, or removes it for "none". Returns a warning if there is no such file.
std::string write_chat_template(const ChosenChatTemplate& chosen, const std::string& output);

}  // namespace trireme
