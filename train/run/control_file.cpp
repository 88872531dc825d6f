#include "train/run/control_file.h"

#include <unistd.h>

#include "base/file.h"
#include "base/text_stream.h"
#include "train/run/step_profile.h"

namespace trireme {

Requests ControlFile::take() {
  if (!session_.log || seconds_since(looked_) < 1) return {};
  looked_ = Clock::now();
  const std::string path = session_.config.train.directory() + "/control", words = text_of_file(path, 4096);
  if (words.empty()) return {};
  unlink(path.c_str());
  TextReader in(words);
  std::string verb;
  int64_t steps = 0;
  in >> verb;
  if (verb == "profile" && in >> steps && steps >= 1 && steps <= StepProfile::kMostSteps) return {.profile = steps};
  if (verb == "evaluate") {
    if (session_.validation || !session_.choices.empty()) return {.evaluate = true};
    session_.note("warning: there is nothing to evaluate: data.validation and train.eval_choices are empty");
    return {};
  }
  session_.note("warning: " + path + " must be 'profile N', N from 1 to " + std::to_string(StepProfile::kMostSteps) +
                ", or 'evaluate'");
  return {};
}

}  // namespace trireme
