// trireme train, trireme plan.
#include <optional>

#include "parallel/agree.h"
#include "train/commands.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace trireme {
namespace {

// Rank 0 reads and checks the config before anything is taken; the others hear it, or that there is none.
std::optional<RunConfig> agree_on_config(const TrainOptions& options, const World& world, const Comm& all) {
  const auto read = [&] {
    const RunConfig config = read_config(options.config, options.set);
    check_mesh(config, world.size());
    return config;
  };
  if (world.size() == 1) return read();
  if (all.rank() > 0) {
    const std::string yaml = broadcast(all, "");
    return yaml.empty() ? std::nullopt : std::optional(parse_config("rank 0's config", yaml));
  }
  try {
    const RunConfig config = read();
    broadcast(all, to_yaml(config));
    return config;
  } catch (...) {
    broadcast(all, "");
    throw;
  }
}

}  // namespace

ExitCode run_train(const TrainOptions& options) {
  World world;
  const Comm all("all", 0, world.rank(), world.launched());
  const std::optional<RunConfig> config = agree_on_config(options, world, all);
  if (!config) return ExitCode::usage;  // rank 0 says why
  return train(*config, world, {.from = options.resume, .allow_changes = options.resume_allow});
}

ExitCode run_plan(const PlanOptions& options) {
  const RunConfig config = read_config(options.config, options.set, Purpose::plan);
  check_mesh(config, options.ranks);
  const Plan plan = make_plan(config, Mesh(0, options.ranks, config.parallel));
  say(options.json ? plan_json(config, plan) : plan_table(config, plan));
  return ExitCode::done;
}

}  // namespace trireme
