#include "train/run/evaluations.h"

#include <algorithm>

#include "parallel/host_collectives.h"
#include "train/health/signals.h"

namespace trireme {
namespace {

// Thrown on all ranks together, out of an evaluation that is abandoned.
struct Abandoned {};

int64_t sequences_of(const RunConfig& config, const Corpus& validation) {
  return evaluated_sequences(config.train.eval_sequences, validation.samples());
}

// One evaluation: those of its parts that the log lacks.
class RunEvaluation {
 public:
  RunEvaluation(Session& session, int64_t step) : s_(session), step_(step), doing_(session.journal, "evaluating") {
    s_.notice.evaluating(true);
    std::vector<int64_t> wanted;
    wanted.push_back(s_.validation && lacks("") ? 1 : 0);
    for (const ChoiceTask& task : s_.choices) wanted.push_back(lacks(task.name()) ? 1 : 0);
    wanted_ = largest(s_.run.mesh.all(), wanted);
    if (wanted_[0] != 0) total_ += sequences_of(s_.config, *s_.validation);
    for (size_t i = 0; i < s_.choices.size(); ++i)
      if (wanted_[i + 1] != 0) total_ += s_.choices[i].sequences();
  }
  ~RunEvaluation() {
    s_.notice.evaluating(false);
    if (s_.log && total_ > 0) s_.log->idle();
  }
  RunEvaluation(const RunEvaluation&) = delete;
  RunEvaluation& operator=(const RunEvaluation&) = delete;

  Evaluated run() {
    if (total_ == 0) return Evaluated::nothing;
    progress(0);
    if (wanted_[0] != 0) validate();
    for (size_t i = 0; i < s_.choices.size(); ++i)
      if (wanted_[i + 1] != 0) answer(s_.choices[i]);
    return Evaluated::all;
  }

 private:
  bool lacks(const std::string& part) const { return s_.log && !s_.log->evaluated(step_, part); }

  void progress(int64_t done) {
    const int64_t signal = largest(s_.run.mesh.all(), stop_signal());
    if (signal != 0) {
      s_.notice.acknowledge(static_cast<int>(signal));
      throw Abandoned();
    }
    if (s_.log) s_.log->busy("evaluating", before_ + done, total_);
  }

  void validate() {
    const Evaluation e = evaluate(s_.run, *s_.validation, s_.config.train.eval_sequences, [this](int64_t done) { progress(done); });
    before_ += sequences_of(s_.config, *s_.validation);
    if (s_.log)
      s_.log->eval({.step = step_,
                    .val_loss = static_cast<float>(e.loss),
                    .bits_per_byte = static_cast<float>(e.bits_per_byte),
                    .val_tokens = e.targets,
                    .seconds = e.seconds});
  }

  void answer(const ChoiceTask& task) {
    const ChoiceScore score = task.score(s_.run, [this](int64_t done) { progress(done); });
    before_ += task.sequences();
    if (!s_.log) return;
    s_.log->choices({.step = step_,
                     .name = task.name(),
                     .accuracy = score.accuracy,
                     .accuracy_error = score.accuracy_error,
                     .normalised = score.normalised,
                     .normalised_error = score.normalised_error,
                     .chance = score.chance,
                     .questions = score.questions,
                     .seconds = score.seconds},
                    describe(score));
  }

  Session& s_;
  const int64_t step_;
  const Doing doing_;
  std::vector<int64_t> wanted_;     // 1: this part; first the validation text, then files of questions
  int64_t total_ = 0, before_ = 0;  // sequences; before: of finished parts
};

}  // namespace

Evaluated evaluate_now(Session& session, int64_t step) {
  RunEvaluation evaluation(session, step);
  try {
    return evaluation.run();
  } catch (const Abandoned&) {
    return Evaluated::abandoned;
  }
}

double evaluation_in_steps(const RunConfig& config, const std::optional<Corpus>& validation,
                           const std::vector<ChoiceTask>& choices) {
  int64_t sequences = validation ? sequences_of(config, *validation) : 0;
  for (const ChoiceTask& task : choices) sequences += task.sequences();
  return static_cast<double>(sequences) / static_cast<double>(config.train.batch) / 3;
}

}  // namespace trireme
