#include "train/hub/exported_chat_template.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/documents/chat_template.h"
#include "data/documents/list_files.h"
#include "train/hub/export_directory.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormNames = "trireme, chatml, llama3 or alpaca";

// A Jinja string with these words, which hold neither quotes nor backslashes.
std::string quoted_words(const std::string& words) {
  std::string written;
  for (const char c : words) written += c == '\n' ? std::string("\\n") : std::string(1, c);
  return "'" + written + "'";
}

// Writes messages of one role: words before and after the content.
std::string when(const std::string& role, const std::string& before, const std::string& after) {
  const std::string prefix = before.empty() ? "" : quoted_words(before) + " + ";
  return " message['role'] == '" + role + "' %}{{ " + prefix + "message['content'] + " + after + " }}";
}

struct TurnMarks {
  std::string system, user, assistant;  // stand before a message of the role
  std::string end;                      // after it
};

std::string of_roles(const TurnMarks& marks) {
  const std::string end = quoted_words(marks.end);
  return "{% for message in messages %}{% if" + when("system", marks.system, end) + "{% elif" + when("user", marks.user, end) +
         "{% elif" + when("assistant", marks.assistant, "eos_token + " + end) +
         "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " + quoted_words(marks.assistant) + " }}{% endif %}";
}

// All messages have the same form, whose end is a marker.
std::string of_markers(const std::string& before, const std::string& between, const std::string& after) {
  return "{% for message in messages %}{{ " + quoted_words(before) + " + message['role'] + " + quoted_words(between) +
         " + message['content'] + " + quoted_words(after) + " }}{% endfor %}{% if add_generation_prompt %}{{ " +
         quoted_words(before + "assistant" + between) + " }}{% endif %}";
}

// The words before the first instruction of a conversation without a system message.
std::string preamble_before(const std::string& instruction) {
  const std::string written = ChatTemplate("alpaca").render(std::vector<ChatMessage>{{"user", instruction}}).front().text;
  return written.substr(0, written.find("### Instruction:"));
}

std::string alpaca_jinja() {
  const std::string input = ChatTemplate("alpaca").with_input("", "x"), mark = input.substr(0, input.size() - 1);
  return "{% if messages[0]['role'] != 'system' %}{% if " + quoted_words(mark) + " in messages[0]['content'] %}{{ " +
         quoted_words(preamble_before(input)) + " }}{% else %}{{ " + quoted_words(preamble_before("x")) +
         " }}{% endif %}{% endif %}" +
         of_roles({.system = "", .user = "### Instruction:\n", .assistant = "### Response:\n", .end = "\n\n"});
}

// The template of a published model, a program in jinja; "" without one.
std::string published_template(const std::string& directory) {
  if (std::string alone = text_of_file(directory + "/chat_template.jinja"); !alone.empty()) return alone;
  const Json config = Json::parse_or_null(text_of_file(directory + "/tokenizer_config.json"));
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

// An eos_token_id with one id more, unless it has that already: the value is an id, several, or null.
Json with_end(const Json& ends, int32_t id) {
  if (!ends.is_array() && !ends.is_integer()) return id;
  Json::Array all = ends.is_array() ? ends.items() : Json::Array{ends};
  if (std::ranges::find(all, Json(id)) != all.end()) return ends;
  all.emplace_back(id);
  return all;
}

}  // namespace

DataChatTemplate chat_template_of_data(const std::vector<std::string>& inputs) try {
  for (const std::string& path : list_files(inputs, ".h5"))
    if (const auto name = chat_template_of(ShardReader(path))) return {.name = *name};
  return {};
} catch (const DataError& error) {
  return {.problem = error.what()};
}

std::string published_chat_form(const std::string& directory) { return resembled(published_template(directory)); }

std::string jinja_of(const std::string& name, const Tokenizer& tokenizer) {
  const ChatTemplate form(name, &tokenizer);  // checks the name
  if (name == "alpaca") return alpaca_jinja();
  if (name == "chatml") return of_markers("<|im_start|>", "\n", "<|im_end|>\n");
  if (name == "trireme")
    return of_roles({.system = "<|system|>\n", .user = "<|user|>\n", .assistant = "<|assistant|>\n", .end = "\n"});
  const char* begin = "<|begin_of_text|>";
  const std::string first = tokenizer.special_token(begin) ? "{{ " + quoted_words(begin) + " }}" : "";
  return first + of_markers("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>");
}

ChosenChatTemplate choose_chat_template(const std::string& choice, const std::vector<std::string>& data,
                                        const std::string& tokenizer) {
  if (choice == "none") return {.name = choice};
  const bool without_tokenizer = tokenizer.empty() || tokenizer == "none";
  const DataChatTemplate of_data = choice.empty() ? chat_template_of_data(data) : DataChatTemplate{};
  if (!of_data.problem.empty() && !without_tokenizer)
    return {.warning = text("if the training data are conversations, the export lacks their chat template, which is not known: ",
                            of_data.problem, "; name it by --chat-template")};
  const std::string name = choice.empty() ? of_data.name : choice;
  if (std::ranges::find(ChatTemplate::kNames, name) == ChatTemplate::kNames.end()) {
    if (name.empty()) return {};
    if (!fs::is_regular_file(name))
      throw ConfigError("--chat-template " + name + ": must be " + kFormNames + ", the path of a Jinja file, or none");
    ChosenChatTemplate chosen{.name = name, .jinja = text_of_file(name)};
    if (chosen.jinja.empty()) throw ConfigError("--chat-template " + name + ": is empty or cannot be read");
    return chosen;
  }
  if (without_tokenizer) return {.name = name};
  const auto opened = open_tokenizer(tokenizer);
  return {.name = name, .jinja = jinja_of(name, *opened), .end_of_turn = ChatTemplate(name, opened.get()).end_of_turn().special};
}

void add_end_of_turn(const ChosenChatTemplate& chosen, const std::string& output, SpecialTokens& tokens) {
  if (!chosen.end_of_turn) return;
  const Json ends = with_end(Json::parse(tokens.end), *chosen.end_of_turn);
  tokens.end = ends.dump();
  const std::string path = output + "/generation_config.json";
  Json config = Json::parse_or_null(text_of_file(path));
  if (!config.is_object()) return;
  const Json its = config.value_or_null("eos_token_id");
  config["eos_token_id"] = its.is_null() ? ends : with_end(its, *chosen.end_of_turn);
  write_export(path, config.dump({.indent = 2}) + "\n");
}

std::string write_chat_template(const ChosenChatTemplate& chosen, const std::string& output) {
  if (chosen.name.empty()) return "";
  const std::string path = output + "/tokenizer_config.json";
  Json config = Json::parse_or_null(text_of_file(path));
  if (!config.is_object())
    return chosen.name == "none" ? "" : "no chat template was written: the export has no tokenizer_config.json";
  fs::remove(output + "/chat_template.jinja");
  config.erase("chat_template");
  if (!chosen.jinja.empty()) config["chat_template"] = chosen.jinja;
  write_export(path, config.dump({.indent = 2}) + "\n");
  return "";
}

}  // namespace trireme
