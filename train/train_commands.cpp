// trireme train, trireme plan.
#include "train/commands.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace trireme {

ExitCode run_train(const TrainOptions& options) {
  World world;
  const RunConfig config = read_config(options.config, options.set);
  return train(config, world, {.from = options.resume, .allow_changes = options.resume_allow});
}

ExitCode run_plan(const PlanOptions& options) {
  const RunConfig config = read_config(options.config, options.set, Purpose::plan);
  if (options.ranks != 1)
    throw ConfigError(text("--ranks ", options.ranks,
                           ": this version plans for one rank; the mesh comes with data, tensor and pipeline parallelism"));
  const Plan plan = make_plan(config);
  say(options.json ? plan_json(config, plan) : plan_table(config, plan));
  return ExitCode::done;
}

}  // namespace trireme
