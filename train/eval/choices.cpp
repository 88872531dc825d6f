#include "train/eval/choices.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/number_format.h"
#include "data/documents/list_files.h"
#include "data/text/text_file.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

std::string name_of_file(const std::string& path) {
  std::filesystem::path name = std::filesystem::path(unpacked_name(path)).filename();
  return name.has_stem() ? name.stem().string() : name.string();
}

// Standard error of a fraction p of n questions: sqrt(p (1 - p) / (n - 1)).
double error_of(double share, int64_t count) {
  return count > 1 ? std::sqrt(share * (1 - share) / static_cast<double>(count - 1)) : 0;
}

}  // namespace

ChoiceScore score_choices(const std::vector<Question>& questions, const std::vector<double>& likelihoods) {
  ChoiceScore score{.questions = static_cast<int64_t>(questions.size())};
  size_t at = 0;
  for (const Question& question : questions) {
    size_t likeliest = 0, normalised = 0;
    const auto of = [&](size_t i) { return likelihoods[at + i]; };
    const auto over_length = [&](size_t i) { return of(i) / static_cast<double>(question.choices[i].characters); };
    for (size_t i = 1; i < question.choices.size(); ++i) {
      if (of(i) > of(likeliest)) likeliest = i;
      if (over_length(i) > over_length(normalised)) normalised = i;
    }
    score.accuracy += likeliest == question.answer ? 1 : 0;
    score.normalised += normalised == question.answer ? 1 : 0;
    score.chance += 1 / static_cast<double>(question.choices.size());
    at += question.choices.size();
  }
  for (double* sum : {&score.accuracy, &score.normalised, &score.chance}) *sum /= static_cast<double>(questions.size());
  score.accuracy_error = error_of(score.accuracy, score.questions);
  score.normalised_error = error_of(score.normalised, score.questions);
  return score;
}

ChoiceTask::ChoiceTask(const std::string& path, const Tokenizer& tokenizer, const ModelConfig& model, const FewShot& few)
    : name_(name_of_file(path)), context_(model.context), shots_(few.shots), questions_(read_questions(path)) {
  complete_prompts(questions_, path, few);
  constexpr size_t kMostShown = 20;
  std::string problems;
  size_t bad = 0;
  for (const Question& question : questions_) {
    for (size_t choice = 0; choice < question.choices.size(); ++choice) {
      Continuation whole = encode_continuation(tokenizer, question.context, question.choices[choice].text);
      const auto size = static_cast<int64_t>(whole.tokens.size()), of_choice = size - whole.first;
      if (of_choice > context_ && ++bad <= kMostShown)
        problems += text(bad > 1 ? "\n" : "", path, ":", question.line, ": choice ", choice, " has ", of_choice,
                         " tokens; the model's context holds ", context_);
      const int64_t cut = std::max<int64_t>(size - context_ - 1, 0);
      whole.tokens.erase(whole.tokens.begin(), whole.tokens.begin() + cut);
      items_.push_back({std::move(whole.tokens), whole.first - cut});
    }
  }
  if (bad > kMostShown) problems += text("\n... and ", bad - kMostShown, " more");
  if (bad > 0) throw DataError(problems);
  pack(model.document_mask);
}

// Each sequence takes the longest item that is left, and after it the shortest ones that fit.
void ChoiceTask::pack(bool together) {
  std::vector<size_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return items_[a].inputs() > items_[b].inputs(); });
  for (size_t longest = 0, end = order.size(); longest < end; ++longest) {
    std::vector<size_t>& row = rows_.emplace_back(1, order[longest]);
    int64_t left = context_ - items_[order[longest]].inputs();
    for (; together && end - 1 > longest && items_[order[end - 1]].inputs() <= left; --end) {
      row.push_back(order[end - 1]);
      left -= items_[order[end - 1]].inputs();
    }
  }
}

void ChoiceTask::read(int64_t sequence, const SampleRow& row) const {
  std::fill_n(row.tokens, context_, 0);
  std::fill_n(row.targets, context_, -1);
  int64_t at = 0;
  const auto place = [&](int64_t count) {  // a document of so many tokens
    for (int64_t t = 0; t < count; ++t, ++at) {
      row.positions[at] = static_cast<int32_t>(t);
      row.document_start[at] = static_cast<int32_t>(at - t);
    }
  };
  for (const size_t number : rows_[static_cast<size_t>(sequence)]) {
    const Item& item = items_[number];
    std::copy_n(item.tokens.begin(), item.inputs(), row.tokens + at);
    std::copy(item.tokens.begin() + item.first, item.tokens.end(), row.targets + at + item.first - 1);
    place(item.inputs());
  }
  place(context_ - at);
}

std::vector<double> ChoiceTask::likelihoods(TrainState& run, const Progressed& progressed) const {
  std::vector<double> found(items_.size(), 0.0);
  const auto add_losses = [&](int64_t sequence, std::span<const int32_t>, std::span<const float> losses) {
    for (const size_t number : rows_[static_cast<size_t>(sequence)]) {
      const auto inputs = static_cast<size_t>(items_[number].inputs());
      const std::span<const float> of_item = losses.first(inputs);  // 0 where there is no target
      found[number] = -std::accumulate(of_item.begin(), of_item.end(), 0.0);
      losses = losses.subspan(inputs);
    }
  };
  const auto read_row = [this](int64_t sequence, const SampleRow& row) { read(sequence, row); };
  predict(run, {.count = sequences(), .read = read_row}, {.report = add_losses, .progressed = progressed});
  for (const Comm* group : run.mesh.loss_groups()) found = sum(*group, found);
  return found;
}

ChoiceScore ChoiceTask::score(TrainState& run, const Progressed& progressed) const {
  const auto begin = Clock::now();
  ChoiceScore score = score_choices(questions_, likelihoods(run, progressed));
  score.seconds = seconds_since(begin);
  return score;
}

std::vector<ChoiceTask> open_choice_tasks(const std::vector<std::string>& inputs, const Tokenizer& tokenizer,
                                          const ModelConfig& model, const ExampleFiles& examples) {
  const std::vector<std::string> files = list_files(inputs), from = list_files(examples.inputs);
  if (from.size() > 1 && from.size() != files.size())
    throw DataError(text(from.size(), " files of examples for ", files.size(),
                         " files of questions: give one for all, or one for each, in the same order"));
  std::vector<ChoiceTask> tasks;
  std::set<std::string> names;
  for (size_t i = 0; i < files.size(); ++i) {
    const FewShot few{.shots = examples.shots, .examples = from.empty() ? "" : from[from.size() == 1 ? 0 : i]};
    tasks.emplace_back(files[i], tokenizer, model, few);
    if (!names.insert(tasks.back().name()).second)
      throw DataError(files[i] + ": another file of questions is also called " + tasks.back().name() + ": rename one of them");
  }
  return tasks;
}

std::string describe(const ChoiceScore& score) {
  return "acc " + fixed(score.accuracy, 4) + " +- " + fixed(score.accuracy_error, 4) + ", acc_norm " + fixed(score.normalised, 4) +
         " +- " + fixed(score.normalised_error, 4) + " (chance " + fixed(score.chance, 4) + ")";
}

}  // namespace trireme
