#include "data/documents/questions.h"

#include <algorithm>
#include <cctype>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text_stream.h"
#include "base/utf8.h"
#include "data/documents/json_line.h"
#include "data/text/text_file.h"

namespace trireme {

namespace {

constexpr size_t kProblemsShown = 20;
constexpr const char* kWhite = " \t\n\r\f\v";

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == nullptr) throw BadLine{std::string("has no field '") + name + "'"};
  return *found;
}

std::string string_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_string()) throw BadLine{std::string("field '") + name + "' is not a string"};
  return value.get<std::string>();
}

std::vector<std::string> strings_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_array() || !std::ranges::all_of(value, [](const Json& one) { return one.is_string(); }))
    throw BadLine{std::string("field '") + name + "' is not a list of strings"};
  return value.get<std::vector<std::string>>();
}

// Index of a choice, written as 1 or "1".
size_t index_field(const Json& object, const char* name, size_t choices) {
  const Json& value = field(object, name);
  const bool digit = value.is_string() && value.get<std::string>().size() == 1 && std::isdigit(value.get<std::string>()[0]) != 0;
  if (!digit && !value.is_integer())
    throw BadLine{std::string("field '") + name + "' is " + value.dump() +
                  ", not the index of a choice; use a split that has answers"};
  const int64_t index = digit ? value.get<std::string>()[0] - '0' : value.get<int64_t>();
  if (index < 0 || index >= static_cast<int64_t>(choices))
    throw BadLine{text("field '", name, "' is ", index, ", of ", choices, " choices (0 to ", choices - 1, ")")};
  return static_cast<size_t>(index);
}

int64_t characters_in(const std::string& words) {
  return std::count_if(words.begin(), words.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::vector<Choice> choices_of(const std::vector<std::string>& words, const char* between) {
  if (words.size() < 2) throw BadLine{text("has ", words.size(), " choices: at least 2 are needed")};
  std::vector<Choice> choices;
  for (const std::string& word : words) {
    if (word.empty()) throw BadLine{text("choice ", choices.size(), " is empty")};
    choices.push_back({between + word, characters_in(word)});
  }
  return choices;
}

Question plain_question(const Json& object) {
  Question question{.context = string_field(object, "context"), .choices = {}, .answer = 0, .line = 0};
  question.choices = choices_of(strings_field(object, "choices"), "");
  question.answer = index_field(object, "answer", question.choices.size());
  return question;
}

void replace_all(std::string& words, std::string_view from, std::string_view to) {
  for (size_t at = words.find(from); at != std::string::npos; at = words.find(from, at + to.size()))
    words.replace(at, from.size(), to);
}

// Text without WikiHow's marks, which HellaSwag contains: "[title]" ends a sentence, others are removed.
std::string without_marks(std::string words) {
  const size_t first = words.find_first_not_of(kWhite);
  words = first == std::string::npos ? "" : words.substr(first, words.find_last_not_of(kWhite) + 1 - first);
  replace_all(words, " [title]", ". ");
  for (size_t open = words.find('['); open != std::string::npos; open = words.find('[', open)) {
    const size_t close = words.find(']', open);
    if (close == std::string::npos) break;
    words.erase(open, close + 1 - open);
  }
  std::string single;
  for (size_t at = 0; at < words.size(); ++at) {
    single += words[at];
    if (words.compare(at, 2, "  ") == 0) ++at;  // two spaces are one
  }
  return single;
}

std::string capitalised(std::string words) {
  for (char& c : words) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!words.empty()) words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words;
}

Question hellaswag_question(const Json& object) {
  const bool in_two = object.contains("ctx_a") && object.contains("ctx_b");
  std::string context =
      in_two ? string_field(object, "ctx_a") + " " + capitalised(string_field(object, "ctx_b")) : string_field(object, "ctx");
  if (object.contains("activity_label")) context = string_field(object, "activity_label") + ": " + context;
  std::vector<std::string> endings = strings_field(object, "endings");
  for (std::string& ending : endings) ending = without_marks(ending);
  Question question{.context = without_marks(context),
                    .choices = choices_of(endings, " "),
                    .answer = 0,
                    .line = 0,
                    .format = QuestionFormat::hellaswag};
  question.answer = index_field(object, "label", question.choices.size());
  return question;
}

// The context lists the choices; their letters are what the model chooses from.
Question mmlu_question(const Json& object) {
  const std::vector<std::string> words = strings_field(object, "choices");
  Question question{
      .context = string_field(object, "question"), .choices = {}, .answer = 0, .line = 0, .format = QuestionFormat::mmlu};
  if (object.contains("subject")) question.subject = string_field(object, "subject");
  question.context = question.context.substr(0, question.context.find_last_not_of(kWhite) + 1);
  question.context.erase(0, question.context.find_first_not_of(kWhite));
  std::vector<std::string> letters;
  for (const std::string& word : words) {
    letters.emplace_back(1, static_cast<char>('A' + letters.size()));
    question.context += "\n" + letters.back() + ". " + word;
  }
  if (letters.size() > 26) throw BadLine{text("has ", letters.size(), " choices: at most 26, one letter each")};
  question.context += "\nAnswer:";
  question.choices = choices_of(letters, " ");
  question.answer = index_field(object, "answer", question.choices.size());
  return question;
}

Question arc_question(const Json& object) {
  Question question{.context = "Question: " + string_field(object, "question") + "\nAnswer:",
                    .choices = {},
                    .answer = 0,
                    .line = 0,
                    .format = QuestionFormat::arc};
  const Json& choices = field(object, "choices");
  if (!choices.is_object()) throw BadLine{"field 'choices' is neither a list nor an object of 'text' and 'label'"};
  question.choices = choices_of(strings_field(choices, "text"), " ");
  const std::vector<std::string> labels = strings_field(choices, "label");
  if (labels.size() != question.choices.size())
    throw BadLine{text("has ", question.choices.size(), " choices and ", labels.size(), " labels")};
  const std::string key = string_field(object, "answerKey");
  const auto found = std::ranges::find(labels, key);
  if (found == labels.end()) throw BadLine{"field 'answerKey' is '" + key + "', which labels none of the choices"};
  question.answer = static_cast<size_t>(found - labels.begin());
  return question;
}

Question piqa_question(const Json& object) {
  Question question{.context = "Question: " + string_field(object, "goal") + "\nAnswer:",
                    .choices = {},
                    .answer = 0,
                    .line = 0,
                    .format = QuestionFormat::piqa};
  question.choices = choices_of({string_field(object, "sol1"), string_field(object, "sol2")}, " ");
  question.answer = index_field(object, "label", question.choices.size());
  return question;
}

Question parse_question(const std::string& line) {
  Json object;
  try {
    object = Json::parse(line);
  } catch (const JsonError& problem) {
    throw BadLine{problem.what()};
  }
  if (!object.is_object()) throw BadLine{"is not a JSON object"};
  if (object.contains("endings")) return hellaswag_question(object);
  if (object.contains("goal")) return piqa_question(object);
  if (object.contains("question")) return field(object, "choices").is_array() ? mmlu_question(object) : arc_question(object);
  if (object.contains("context")) return plain_question(object);
  throw BadLine{"has none of the fields 'context', 'endings', 'question' and 'goal', by which a format is recognised"};
}

std::string whole_text(const std::string& path) {
  constexpr int64_t kPart = 1 << 20;
  TextFile file(path);
  std::string all;
  for (int64_t read = kPart; !file.ended() && read > 0;) {
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(kPart));
    read = file.read(all.data() + before, kPart);
    all.resize(before + static_cast<size_t>(read));
  }
  return all;
}

// The beginning of a text, for a message: at most 40 bytes of its first line.
std::string first_words(const std::string& words) {
  const std::string line = words.substr(0, words.find_first_of("\r\n"));
  return line.size() <= 40 ? line : line.substr(0, start_of_character(line, 40)) + "...";
}

// Says in one line why nothing in a file can be a question; "" if some line is JSON.
std::string other_than_json_lines(const std::string& path, const std::string& all) {
  const size_t begin = std::min(all.find_first_not_of(kWhite), all.size());
  TextReader lines(all);
  for (std::string line; std::getline(lines, line);)
    if (Json::parse_or_null(line).is_object()) return "";
  const bool json = !Json::parse_or_null(all).is_null();
  if (json && all[begin] == '[') return path + ": holds one JSON array, not JSON lines: write one object per line (jq -c '.[]')";
  if (json) return path + ": holds one JSON value, not JSON lines: write one object per line (jq -c .)";
  return path + ": is not a file of JSON lines, one question each; it begins with " + Json(first_words(all.substr(begin))).dump();
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  const std::string all = whole_text(path);
  std::vector<Question> questions;
  std::string problems;
  size_t bad = 0;
  int64_t number = 0;
  TextReader lines(all);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(kWhite) == std::string::npos) continue;
    try {
      questions.push_back(parse_question(line));
      questions.back().line = number;
      questions.back().line_digest = digest(line);
    } catch (const BadLine& problem) {
      if (++bad <= kProblemsShown) problems += text(bad > 1 ? "\n" : "", path, ":", number, ": ", problem.problem);
    }
  }
  if (bad > 0 && questions.empty())
    if (const std::string other = other_than_json_lines(path, all); !other.empty()) throw DataError(other);
  if (bad > kProblemsShown) problems += text("\n... and ", bad - kProblemsShown, " more problems");
  if (bad > 0) throw DataError(problems);
  if (questions.empty()) throw DataError(path + ": holds no questions");
  return questions;
}

Continuation encode_continuation(const Tokenizer& tokenizer, const std::string& context, const std::string& continuation) {
  const size_t last = context.find_last_not_of(kWhite);
  const std::string before = context.substr(0, last == std::string::npos ? 0 : last + 1);
  Continuation whole{.tokens = tokenizer.encode(context + continuation), .first = 0};
  if (before.empty()) {
    whole.tokens.insert(whole.tokens.begin(), tokenizer.end_of_document());
    return whole.first = 1, whole;
  }
  const auto of_context = static_cast<int64_t>(tokenizer.encode(before).size());
  whole.first = std::min(of_context, static_cast<int64_t>(whole.tokens.size()) - 1);
  return whole;
}

}  // namespace trireme
