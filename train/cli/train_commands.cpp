// trireme train, trireme plan.
#include <optional>

#include "train/cli/commands.h"
#include "train/run/launch_agreement.h"
#include "train/run/mesh_suggestion.h"
#include "train/run/trainer.h"
#include "train/telemetry/log.h"

namespace trireme {

ExitCode run_train(const TrainOptions& options) {
  World world;
  const Comm all("all", 0, world.rank(), world.launched());
  const std::optional<RunConfig> config = agree_on_config(all, [&] {
    RunConfig read = read_config(options.config, options.set);
    require_mesh(read, world.size(), 0);
    return read;
  });
  if (!config) return ExitCode::usage;  // rank 0 has said why
  return train(*config, world, {.from = options.resume, .allow_changes = options.resume_allow});
}

ExitCode run_plan(const PlanOptions& options) {
  const RunConfig config = read_config(options.config, options.set, Purpose::mesh);
  const std::optional<int64_t> memory = options.memory.empty() ? 0 : parse_bytes(options.memory);
  if (!memory) throw ConfigError("--memory " + options.memory + ": must be a size such as 80GB or 75.5GiB");
  require_mesh(config, options.ranks, *memory);
  const std::vector<Plan> stages = stage_plans(config, options.ranks);
  say(options.json ? plan_json(config, stages) : plan_table(config, stages));
  return ExitCode::done;
}

}  // namespace trireme
