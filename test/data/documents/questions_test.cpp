// Multiple-choice questions: five formats, every way to be malformed, and where a context ends and its continuation begins.
#include "data/documents/questions.h"

#include "base/error.h"
#include "test/catch.h"
#include "test/data/scratch.h"

namespace trireme {
namespace {

std::vector<Question> read(const std::string& lines) {
  const Scratch scratch;
  write_text(scratch / "q.jsonl", lines);
  return read_questions(scratch / "q.jsonl");
}

Question one(const std::string& line) {
  const std::vector<Question> questions = read(line);
  REQUIRE(questions.size() == 1);
  return questions.front();
}

// The message after "PATH:1: " for a file of one line.
std::string refusal(const std::string& lines) {
  try {
    read(lines);
    return "";
  } catch (const DataError& error) {
    const std::string what = error.what();
    const size_t path = what.find("q.jsonl:");
    return path == std::string::npos ? what : what.substr(path);
  }
}

std::string texts(const Question& question) {
  std::string all;
  for (const Choice& choice : question.choices) all += "|" + choice.text + ":" + std::to_string(choice.characters);
  return all;
}

}  // namespace

TEST_CASE("questions are read in five formats") {
  const Question plain = one(R"({"context": "Two and two are", "choices": [" four", " fünf"], "answer": 0})");
  CHECK(plain.context == "Two and two are");
  CHECK(texts(plain) == "| four:5| fünf:5");
  CHECK(plain.answer == 0);

  const std::string hellaswag = R"("activity_label": "Roof", "endings": ["is on. [step] it", "is  off."], "label": "1"})";
  const Question whole = one(R"({"ctx": "A man [title] on", )" + hellaswag);
  CHECK(whole.context == "Roof: A man. on");
  CHECK(texts(whole) == "| is on. it:9| is off.:7");
  CHECK(whole.answer == 1);
  CHECK(one(R"({"ctx_a": "A man sits.", "ctx_b": "he ROLLS", )" + hellaswag).context == "Roof: A man sits. He rolls");
  CHECK(one(R"({"ctx": "A man sits.", "endings": ["a", "b"], "label": 0})").context == "A man sits.");

  const Question arc = one(
      R"({"id": "x", "question": "Why?", "choices": {"text": ["so", "not", "ever"], "label": ["1", "2", "3"]}, "answerKey": "3"})");
  CHECK(arc.context == "Question: Why?\nAnswer:");
  CHECK(texts(arc) == "| so:2| not:3| ever:4");
  CHECK(arc.answer == 2);

  const Question mmlu = one(R"({"question": " Which is it?\n", "subject": "s", "choices": ["this", "that", "none"], "answer": 1})");
  CHECK(mmlu.context == "Which is it?\nA. this\nB. that\nC. none\nAnswer:");
  CHECK(texts(mmlu) == "| A:1| B:1| C:1");
  CHECK(mmlu.answer == 1);
  CHECK(mmlu.subject == "s");
  CHECK(mmlu.format == QuestionFormat::mmlu);

  const Question piqa = one(R"({"goal": "Open it", "sol1": "pull", "sol2": "push it", "label": 1})");
  CHECK(piqa.context == "Question: Open it\nAnswer:");
  CHECK(texts(piqa) == "| pull:4| push it:7");
  CHECK(piqa.answer == 1);
}

TEST_CASE("a malformed question is refused with its line and what is missing") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"text": "a"})", "has none of the fields 'context', 'endings', 'question' and 'goal', by which a format is recognised"},
      {R"({"context": 1, "choices": ["a", "b"], "answer": 0})", "field 'context' is not a string"},
      {R"({"context": "a", "answer": 0})", "has no field 'choices'"},
      {R"({"context": "a", "choices": ["a", 2], "answer": 0})", "field 'choices' is not a list of strings"},
      {R"({"context": "a", "choices": ["a"], "answer": 0})", "has 1 choices: at least 2 are needed"},
      {R"({"context": "a", "choices": ["a", ""], "answer": 0})", "choice 1 is empty"},
      {R"({"context": "a", "choices": ["a", "b"]})", "has no field 'answer'"},
      {R"({"context": "a", "choices": ["a", "b"], "answer": 2})", "field 'answer' is 2, of 2 choices (0 to 1)"},
      {R"({"context": "a", "choices": ["a", "b"], "answer": -1})", "field 'answer' is -1, of 2 choices (0 to 1)"},
      {R"({"ctx": "a", "endings": ["a", "b"], "label": ""})",
       "field 'label' is \"\", not the index of a choice; use a split that has answers"},
      {R"({"endings": ["a", "b"], "label": 0})", "has no field 'ctx'"},
      {R"({"ctx": "a", "endings": ["a", "[x]"], "label": 0})", "choice 1 is empty"},
      {R"({"question": "a", "choices": ["a", "b"], "answerKey": "A"})", "has no field 'answer'"},
      {R"({"question": "a", "choices": "a", "answerKey": "A"})",
       "field 'choices' is neither a list nor an object of 'text' and 'label'"},
      {R"({"question": "a", "choices": {"text": ["a", "b"]}, "answerKey": "A"})", "has no field 'label'"},
      {R"({"question": "a", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"})", "has 2 choices and 1 labels"},
      {R"({"question": "a", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"})",
       "field 'answerKey' is 'C', which labels none of the choices"},
      {R"({"goal": "a", "sol1": "b", "label": 0})", "has no field 'sol2'"},
      {R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 1.5})",
       "field 'label' is 1.5, not the index of a choice; use a split that has answers"}};
  for (const auto& [line, wanted] : cases) {
    INFO(line);
    CHECK(refusal(line) == "q.jsonl:1: " + wanted);
  }
}

TEST_CASE("all malformed questions are listed at once, the first twenty by line, and blank lines are skipped") {
  const std::string good = R"({"context": "a", "choices": ["b", "c"], "answer": 1})";
  CHECK(read(good + "\n\n  \n" + good + "\n").back().line == 4);
  CHECK(read(good + "\n" + good).front().line_digest == read(good + "\n" + good).back().line_digest);
  CHECK_THAT(refusal("\n"), Catch::Matchers::EndsWith("holds no questions"));
  std::string lines = good + "\n";
  for (int i = 0; i < 22; ++i) lines += "{}\n";
  const std::string listed = refusal(lines);
  CHECK(std::count(listed.begin(), listed.end(), '\n') == 20);
  CHECK_THAT(listed, Catch::Matchers::StartsWith("q.jsonl:2: has none"));
  CHECK_THAT(listed, ContainsSubstring("q.jsonl:21: has none"));
  CHECK_THAT(listed, Catch::Matchers::EndsWith("\n... and 2 more problems"));
  CHECK(refusal(good + "\n[1]") == "q.jsonl:2: is not a JSON object");
  CHECK_THAT(refusal(good + "\n{"), Catch::Matchers::StartsWith("q.jsonl:2: is not JSON: "));
}

TEST_CASE("a file that holds no JSON lines is refused in one line") {
  std::string prose;
  for (int i = 0; i < 9000; ++i) prose += "The ship sails north, \"said\" its captain in the harbour.\n";
  CHECK(refusal(prose) ==
        "q.jsonl: is not a file of JSON lines, one question each; it begins with "
        R"("The ship sails north, \"said\" its captain...")");
  CHECK(refusal("\xc3\xa4\n") == "q.jsonl: is not a file of JSON lines, one question each; it begins with \"\xc3\xa4\"");
  const std::string good = R"({"context": "a", "choices": ["b", "c"], "answer": 1})";
  CHECK(refusal("[" + good + ",\n" + good + "]\n") ==
        "q.jsonl: holds one JSON array, not JSON lines: write one object per line (jq -c '.[]')");
  CHECK(refusal("{\n\"context\": 1\n}\n") == "q.jsonl: holds one JSON value, not JSON lines: write one object per line (jq -c .)");
}

TEST_CASE("a continuation begins after as many tokens as its context alone has, white space before it included") {
  const auto bytes = make_byte_tokenizer();
  const Continuation plain = encode_continuation(*bytes, "ab", "cd");
  CHECK(plain.tokens == std::vector<int32_t>{'a', 'b', 'c', 'd'});
  CHECK(plain.first == 2);
  CHECK(encode_continuation(*bytes, "ab  ", "cd").first == 2);  // the spaces are predicted
  const Continuation alone = encode_continuation(*bytes, " ", "c");
  CHECK(alone.tokens == std::vector<int32_t>{bytes->end_of_document(), ' ', 'c'});
  CHECK(alone.first == 1);

  // One token may reach over the boundary: "The answer" + "s" is " answers".
  const auto gpt2 = open_tokenizer(std::string(TRIREME_SOURCE) + "/test/data/goldens/gpt2.json");
  for (const auto& [context, continuation] :
       {std::pair("The quick brown", " fox"), {"The quick brown ", "fox"}, {"The answer", "s"}, {"a", "b"}}) {
    const Continuation c = encode_continuation(*gpt2, context, continuation);
    CHECK(gpt2->decode(c.tokens) == std::string(context) + continuation);
    CHECK(0 < c.first);
    CHECK(c.first < std::ssize(c.tokens));
  }
  CHECK(encode_continuation(*gpt2, "The quick brown ", "fox").first == std::ssize(gpt2->encode("The quick brown")));
}

}  // namespace trireme
