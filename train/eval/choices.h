// Multiple choice: which of several texts a model finds likeliest behind a context.
#pragma once

#include <string>
#include <vector>

#include "data/documents/questions.h"
#include "train/eval/evaluate.h"

namespace trireme {

// Shares of questions answered rightly, with their standard errors. The choice taken is that of the largest log-likelihood
// (accuracy), or of the largest log-likelihood over its characters (normalised); of equal ones the first.
struct ChoiceScore {
  int64_t questions = 0;
  double accuracy = 0, accuracy_error = 0;
  double normalised = 0, normalised_error = 0;
  double chance = 0;  // what guessing gets
  double seconds = 0;
};

// Of questions and the log-likelihoods, in nats, of all their choices in order.
ChoiceScore score_choices(const std::vector<Question>& questions, const std::vector<double>& likelihoods);

// One file of questions, as tokens. Several choices stand in a sequence where the model's attention keeps documents apart, else
// each in one of its own.
class ChoiceTask {
 public:
  // DataError, all problems at once, when the file cannot be used or a choice alone is longer than the context. What does not fit
  // with its context is cut at the left.
  ChoiceTask(const std::string& path, const Tokenizer& tokenizer, const ModelConfig& model);

  const std::string& name() const { return name_; }  // the file's, without directory and endings
  const std::vector<Question>& questions() const { return questions_; }
  int64_t sequences() const { return static_cast<int64_t>(rows_.size()); }

  // All ranks together; each gets all of them.
  std::vector<double> likelihoods(TrainState& run, const Progressed& progressed = {}) const;
  ChoiceScore score(TrainState& run, const Progressed& progressed = {}) const;

 private:
  struct Item {  // a choice behind its context
    std::vector<int32_t> tokens;
    int64_t first;  // token of the choice
    int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  };
  void pack(bool together);
  void read(int64_t sequence, const SampleRow& row) const;

  std::string name_;
  int64_t context_;
  std::vector<Question> questions_;
  std::vector<Item> items_;                // of each question its choices
  std::vector<std::vector<size_t>> rows_;  // the items of each sequence, one behind the other
};

// Of files that list_files finds; their names differ.
std::vector<ChoiceTask> open_choice_tasks(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                          const ModelConfig& model);

// "acc 0.4123 +- 0.0049, acc_norm 0.5311 +- 0.0050 (chance 0.2500)"
std::string describe(const ChoiceScore& score);

}  // namespace trireme
