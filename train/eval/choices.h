// Multiple-choice evaluation: which of several texts a model finds most likely after a context.
#pragma once

#include <string>
#include <vector>

#include "data/documents/few_shot.h"
#include "train/eval/evaluate.h"

namespace trireme {

// Fractions of correct answers, with standard errors. The answer is the choice with the largest log-likelihood (accuracy), or with
// the largest log-likelihood divided by its characters (normalised). The first wins a tie.
struct ChoiceScore {
  int64_t questions = 0;
  double accuracy = 0, accuracy_error = 0;
  double normalised = 0, normalised_error = 0;
  double chance = 0;  // accuracy of guessing
  double seconds = 0;
};

// Scores log-likelihoods in nats: those of all choices of all questions, in order.
ChoiceScore score_choices(const std::vector<Question>& questions, const std::vector<double>& likelihoods);

// The prompts and choices of one file, as tokens. If the model's attention separates documents, a sequence holds several choices,
// otherwise one.
class ChoiceTask {
 public:
  // DataError lists the problems of a file that cannot be used, or whose choices alone exceed the model's context. Prompts that
  // are too long lose their beginning.
  ChoiceTask(const std::string& path, const Tokenizer& tokenizer, const ModelConfig& model, const FewShot& few = {});

  const std::string& name() const { return name_; }  // of the file, without directory and suffixes
  const std::vector<Question>& questions() const { return questions_; }
  int64_t choices() const { return static_cast<int64_t>(items_.size()); }
  int64_t shots() const { return shots_; }
  int64_t sequences() const { return static_cast<int64_t>(rows_.size()); }

  // Log-likelihoods in nats of all choices. All ranks call it together, and each gets all of them.
  std::vector<double> likelihoods(TrainState& run, const Progressed& progressed = {}) const;
  ChoiceScore score(TrainState& run, const Progressed& progressed = {}) const;

 private:
  struct Item {  // a choice after its context
    std::vector<int32_t> tokens;
    int64_t first;  // index of the choice's first token
    int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  };
  void pack(bool together);
  void read(int64_t sequence, const SampleRow& row) const;

  std::string name_;
  int64_t context_, shots_;
  std::vector<Question> questions_;
  std::vector<Item> items_;                // the choices of each question in turn
  std::vector<std::vector<size_t>> rows_;  // the items of each sequence, in order
};

// Sources of the few-shot examples of several files of questions.
struct ExampleFiles {
  int64_t shots = 0;
  std::vector<std::string> inputs = {};  // as list_files reads them: none, one for all, or one for each file of questions
};

// Opens the files that list_files finds. DataError if two have the same name, or examples do not match the files.
std::vector<ChoiceTask> open_choice_tasks(const std::vector<std::string>& inputs, const Tokenizer& tokenizer,
                                          const ModelConfig& model, const ExampleFiles& examples = {});

// "acc 0.4123 +- 0.0049, acc_norm 0.5311 +- 0.0050 (chance 0.2500)"
std::string describe(const ChoiceScore& score);

}  // namespace trireme
