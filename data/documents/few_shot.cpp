#include "data/documents/few_shot.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "base/error.h"
#include "data/documents/python_random.h"

namespace trireme {

namespace {

constexpr uint32_t kFewShotSeed = 1234;  // lm_eval's default, --seed

const char* name_of_format(QuestionFormat format) {
  switch (format) {
    case QuestionFormat::plain:
      return "plain";
    case QuestionFormat::hellaswag:
      return "HellaSwag";
    case QuestionFormat::arc:
      return "ARC";
    case QuestionFormat::mmlu:
      return "MMLU";
    case QuestionFormat::piqa:
      return "PIQA";
  }
  return "";
}

std::string description_of(const Question& question) {
  if (question.subject.empty()) return "";
  std::string subject = question.subject;
  std::ranges::replace(subject, '_', ' ');
  return "The following are multiple choice questions (with answers) about " + subject + ".\n\n";
}

std::string solved(const Question& example) { return example.context + example.choices[example.answer].text + "\n\n"; }

// Chooses the examples of one question after the other.
class ExampleSampler {
 public:
  // `own`: the pool is the questions themselves.
  ExampleSampler(const std::vector<Question>& pool, const std::string& path, int64_t shots, bool own)
      : pool_(pool), path_(path), shots_(static_cast<size_t>(shots)), own_(own), random_(kFewShotSeed) {
    for (size_t i = 0; i < pool.size(); ++i) {
      all_.push_back(i);
      if (!pool[i].subject.empty()) of_subject_[pool[i].subject].push_back(i);
    }
  }

  // Indices in the pool. Tasks that have a test split of their own, ARC and MMLU, do not look for the question in the pool.
  std::vector<size_t> choose(const Question& question) {
    const bool first = question.format == QuestionFormat::mmlu, apart = first || question.format == QuestionFormat::arc;
    const bool search = own_ || !apart;
    const std::vector<size_t>& candidates = question.subject.empty() ? all_ : of_subject_[question.subject];
    std::vector<size_t> chosen = first ? candidates : pick(candidates, std::min(candidates.size(), shots_ + (search ? 1 : 0)));
    if (search) remove_copies(question, chosen);
    if (search && chosen.size() < shots_) {
      chosen = candidates;
      remove_copies(question, chosen);
      if (!first && chosen.size() >= shots_) chosen = pick(chosen, shots_);
    }
    if (chosen.size() < shots_)
      throw DataError(text(path_, own_ ? ": too few other questions" : ": too few examples",
                           question.subject.empty() ? "" : " about " + question.subject, ": ", chosen.size(), " of ", shots_,
                           "; lower the shots, or ", own_ ? "name a file of examples" : "add examples"));
    chosen.resize(shots_);
    return chosen;
  }

 private:
  void remove_copies(const Question& question, std::vector<size_t>& from) const {
    std::erase_if(from, [&](size_t i) { return pool_[i].line_digest == question.line_digest; });
  }
  std::vector<size_t> pick(const std::vector<size_t>& from, size_t count) {
    std::vector<size_t> picked = random_.sample(from.size(), count);
    for (size_t& i : picked) i = from[i];
    return picked;
  }

  const std::vector<Question>& pool_;
  const std::string& path_;
  size_t shots_;
  bool own_;
  PythonRandom random_;
  std::vector<size_t> all_;
  std::unordered_map<std::string, std::vector<size_t>> of_subject_;
};

}  // namespace

void complete_prompts(std::vector<Question>& questions, const std::string& path, const FewShot& few) {
  std::vector<std::string> before;
  for (const Question& question : questions) before.push_back(description_of(question));
  if (few.shots > 0) {
    std::error_code no_such_file;
    const bool own = few.examples.empty() || std::filesystem::equivalent(few.examples, path, no_such_file);
    const std::vector<Question> read = own ? std::vector<Question>() : read_questions(few.examples);
    const std::vector<Question>& pool = own ? questions : read;
    const std::string& pool_path = own ? path : few.examples;
    for (const Question& example : pool)
      if (example.format != questions.front().format)
        throw DataError(text(pool_path, ":", example.line, ": the example's format is ", name_of_format(example.format),
                             ", that of ", path, " is ", name_of_format(questions.front().format),
                             ": use examples of the same format"));
    ExampleSampler sampler(pool, pool_path, few.shots, own);
    for (size_t i = 0; i < questions.size(); ++i)
      for (const size_t chosen : sampler.choose(questions[i])) before[i] += solved(pool[chosen]);
  }
  for (size_t i = 0; i < questions.size(); ++i) questions[i].context.insert(0, before[i]);
}

}  // namespace trireme
