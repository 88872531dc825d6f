// Few-shot prompts against the contexts of lm-evaluation-harness (scripts/make_choices_golden.py), and what is refused.
#include "data/documents/few_shot.h"

#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "data/documents/python_random.h"
#include "test/catch.h"
#include "test/data/scratch.h"

namespace trireme {
namespace {

std::string golden_choices(const std::string& name) {
  return std::string(TRIREME_SOURCE) + "/test/data/goldens/choices/" + name + ".jsonl";
}

std::vector<Question> prompts(const std::string& path, const FewShot& few) {
  std::vector<Question> questions = read_questions(path);
  complete_prompts(questions, path, few);
  return questions;
}

std::string few_shot_refusal(const std::string& path, const FewShot& few) {
  try {
    prompts(path, few);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("samples are those of Python's random.Random(1234)") {
  PythonRandom random(1234);
  CHECK(random.sample(30, 2) == std::vector<size_t>{24, 14});
  CHECK(random.sample(30, 6) == std::vector<size_t>{3, 0, 2, 25, 18, 1});
  CHECK(random.sample(39905, 10) == std::vector<size_t>{5500, 6450, 23241, 15519, 1142, 2019, 1038, 22681, 31735, 30379});
  CHECK(random.sample(5, 5) == std::vector<size_t>{1, 0, 3, 2, 4});
  CHECK(random.sample(1, 1) == std::vector<size_t>{0});
  CHECK(random.sample(100, 20) ==
        std::vector<size_t>{31, 8, 85, 69, 59, 76, 86, 11, 65, 74, 5, 34, 71, 82, 38, 61, 45, 83, 25, 58});
  CHECK_THROWS_AS(random.sample(3, 4), Error);
}

TEST_CASE("few-shot contexts are lm-evaluation-harness's, character by character") {
  std::istringstream lines(read_text(golden_choices("contexts")));
  int64_t compared = 0;
  for (std::string line; std::getline(lines, line); ++compared) {
    const Json golden = Json::parse(line);
    const std::string task = golden.at("task").get<std::string>();
    const FewShot few{.shots = golden.at("shots").get<int64_t>(),
                      .examples = task == "own" ? "" : golden_choices("examples_" + task)};
    const std::vector<Question> questions = prompts(golden_choices("questions_" + task), few);
    const Question& question = questions.at(golden.at("question").get<size_t>());
    CHECK(question.context == golden.at("context").get<std::string>());
    std::vector<std::string> choices;
    for (const Choice& choice : question.choices) choices.push_back(choice.text);
    CHECK(choices == golden.at("choices").get<std::vector<std::string>>());
  }
  CHECK(compared == 105);
}

TEST_CASE("plain questions are solved as they are, each by the others") {
  const Scratch scratch;
  write_text(scratch / "q.jsonl", R"({"context": "1 + 1 =", "choices": [" 2", " 3"], "answer": 0})"
                                  "\n"
                                  R"({"context": "2 + 2 =", "choices": [" 3", " 4"], "answer": 1})");
  const std::vector<Question> questions = prompts(scratch / "q.jsonl", {.shots = 1, .examples = scratch / "q.jsonl"});
  CHECK(questions[0].context == "2 + 2 = 4\n\n1 + 1 =");
  CHECK(questions[1].context == "1 + 1 = 2\n\n2 + 2 =");
}

TEST_CASE("examples that are too few or of another format are refused in one line") {
  const Scratch scratch;
  const std::string mmlu = R"({"question": "a", "subject": "anatomy", "choices": ["b", "c"], "answer": 1})";
  const std::string piqa = R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 1})";
  const std::string asked = scratch / "asked.jsonl", dev = scratch / "dev.jsonl";
  write_text(asked, mmlu + "\n" + mmlu + "\n");
  write_text(dev, mmlu);
  CHECK(few_shot_refusal(asked, {.shots = 1, .examples = dev}).empty());
  CHECK(few_shot_refusal(asked, {.shots = 5, .examples = dev}) ==
        dev + ": too few examples about anatomy: 1 of 5; lower the shots, or add examples");
  CHECK(few_shot_refusal(asked, {.shots = 1}) ==
        asked + ": too few other questions about anatomy: 0 of 1; lower the shots, or name a file of examples");
  write_text(dev, mmlu + "\n" + piqa);
  CHECK(few_shot_refusal(asked, {.shots = 1, .examples = dev}) ==
        dev + ":2: the example's format is PIQA, that of " + asked + " is MMLU: use examples of the same format");
}

}  // namespace trireme
