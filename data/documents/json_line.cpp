#include "data/documents/json_line.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace trireme {

namespace {

std::string& string_in(Json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == nullptr) throw BadLine{"has no field '" + field + "'"};
  if (!found->is_string()) throw BadLine{"field '" + field + "' is no string"};
  return found->string();
}

std::vector<LinePart> prompt_and_response(Json& object, const DocumentOptions& options) {
  std::vector<LinePart> parts;
  std::string &prompt = string_in(object, options.prompt), &response = string_in(object, options.response);
  if (response.empty()) throw BadLine{"field '" + options.response + "' is empty"};
  if (!prompt.empty()) parts.push_back({.text = std::move(prompt), .trained = false});
  parts.push_back({.text = std::move(response), .trained = true});
  return parts;
}

// A message's role and content.
std::pair<std::string, std::string> role_and_content(Json& message, const std::string& name) {
  const bool whole = message.is_object() && message.contains("role") && message["role"].is_string() &&
                     message.contains("content") && message["content"].is_string();
  if (!whole) throw BadLine{name + " is no object with strings 'role' and 'content'"};
  return {message["role"].get<std::string>(), std::move(message["content"].string())};
}

std::vector<LinePart> conversation(Json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == nullptr) throw BadLine{"has no field '" + field + "'"};
  if (!found->is_array()) throw BadLine{"field '" + field + "' is no list"};
  std::vector<LinePart> parts;
  std::string given;  // up to the next answer
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string name = text(field, "[", i, "]");
    auto [role, content] = role_and_content((*found)[i], name);
    if (role != "system" && role != "user" && role != "assistant")
      throw BadLine{name + ".role is '" + role + "': must be system, user or assistant"};
    given += "<|" + role + "|>\n";
    if (role != "assistant") {
      given += content + "\n";
      continue;
    }
    if (content.empty()) throw BadLine{name + ".content is empty"};
    parts.push_back({.text = std::exchange(given, "\n"), .trained = false});
    parts.push_back({.text = std::move(content), .trained = true, .ends_turn = true});
  }
  if (parts.empty()) throw BadLine{"field '" + field + "' has no message of the assistant"};
  parts.back().ends_turn = false;  // the document ends there
  return parts;
}

}  // namespace

ParsedLine parse_line(const std::string& line, const DocumentOptions& options) {
  try {
    Json object = Json::parse(line);
    if (!object.is_object()) return {{}, "is no JSON object"};
    if (!options.messages.empty()) return {conversation(object, options.messages), {}};
    if (!options.prompt.empty()) return {prompt_and_response(object, options), {}};
    std::string& text = string_in(object, options.field);
    if (text.empty()) return {};
    std::vector<LinePart> parts;
    parts.push_back({.text = std::move(text), .trained = true});
    return {std::move(parts), {}};
  } catch (const BadLine& bad) {
    return {{}, bad.problem};
  } catch (const JsonError& problem) {
    return {{}, problem.what()};
  }
}

}  // namespace trireme
