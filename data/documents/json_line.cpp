#include "data/documents/json_line.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace trireme {

namespace {

std::string& string_in(Json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == nullptr) throw BadLine{"has no field '" + field + "'"};
  if (!found->is_string()) throw BadLine{"field '" + field + "' is not a string"};
  return found->string();
}

ParsedLine prompt_and_response(Json& object, const DocumentOptions& options) {
  std::string &prompt = string_in(object, options.prompt), &response = string_in(object, options.response);
  if (response.empty()) throw BadLine{"field '" + options.response + "' is empty"};
  if (const std::string name = template_of(options); !name.empty()) {
    const ChatTemplate form(name, options.tokenizer);
    const bool has_input = !options.input.empty() && object.contains(options.input) && !object[options.input].is_null();
    const std::string words = has_input ? form.with_input(prompt, string_in(object, options.input)) : prompt;
    return {.parts = form.document(std::array{ChatMessage{"user", words}, ChatMessage{"assistant", response}}),
            .prompted = !words.empty()};
  }
  ParsedLine line{.prompted = !prompt.empty()};
  if (line.prompted) line.parts.push_back({.text = std::move(prompt)});
  line.parts.push_back({.text = std::move(response), .trained = true});
  return line;
}

bool has_strings(Json& message, const char* first, const char* second) {
  return message.is_object() && message.contains(first) && message[first].is_string() && message.contains(second) &&
         message[second].is_string();
}

// ShareGPT's messages have `from` and `value`, with names of their own for the roles.
ChatMessage message_of(Json& message, const std::string& name) {
  if (has_strings(message, "role", "content")) {
    auto role = message["role"].get<std::string>();
    if (role != "system" && role != "user" && role != "assistant")
      throw BadLine{name + ".role is '" + role + "': must be system, user or assistant"};
    return {std::move(role), std::move(message["content"].string())};
  }
  if (!has_strings(message, "from", "value"))
    throw BadLine{name + " is not an object with strings 'role' and 'content', or 'from' and 'value'"};
  const auto from = message["from"].get<std::string>();
  const char* const role = from == "system"                       ? "system"
                           : from == "human" || from == "user"    ? "user"
                           : from == "gpt" || from == "assistant" ? "assistant"
                                                                  : nullptr;
  if (role == nullptr) throw BadLine{name + ".from is '" + from + "': must be system, human or gpt"};
  return {role, std::move(message["value"].string())};
}

bool begins_with_words(const std::vector<ChatMessage>& messages) {
  for (const ChatMessage& message : messages) {
    if (message.role == "assistant") return false;
    if (!message.content.empty()) return true;
  }
  return false;
}

ParsedLine conversation(Json& object, const DocumentOptions& options) {
  const std::string& field = options.messages;
  const auto found = object.find(field);
  if (found == nullptr) throw BadLine{"has no field '" + field + "'"};
  if (!found->is_array()) throw BadLine{"field '" + field + "' is not a list"};
  const ChatTemplate form(template_of(options), options.tokenizer);
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string name = text(field, "[", i, "]");
    messages.push_back(message_of((*found)[i], name));
    if (messages[i].role == "assistant" && messages[i].content.empty()) throw BadLine{name + " is empty"};
    if (const std::string problem = form.problem_of(messages[i], i); !problem.empty()) throw BadLine{name + " " + problem};
  }
  std::vector<LinePart> parts = form.document(messages);
  if (parts.empty()) throw BadLine{"field '" + field + "' has no message of the assistant"};
  return {.parts = std::move(parts), .prompted = begins_with_words(messages)};
}

}  // namespace

std::string template_of(const DocumentOptions& options) {
  if (!options.chat_template.empty() || !options.has_prompts()) return options.chat_template;
  if (!options.messages.empty()) return "trireme";
  return options.input.empty() ? "" : "alpaca";
}

ParsedLine parse_line(const std::string& line, const DocumentOptions& options) {
  try {
    Json object = Json::parse(line);
    if (!object.is_object()) return {.problem = "is not a JSON object"};
    if (!options.messages.empty()) return conversation(object, options);
    if (!options.prompt.empty()) return prompt_and_response(object, options);
    std::string& text = string_in(object, options.field);
    if (text.empty()) return {};
    std::vector<LinePart> parts;
    parts.push_back({.text = std::move(text), .trained = true});
    return {.parts = std::move(parts)};
  } catch (const BadLine& bad) {
    return {.problem = bad.problem};
  } catch (const JsonError& problem) {
    return {.problem = problem.what()};
  }
}

}  // namespace trireme
