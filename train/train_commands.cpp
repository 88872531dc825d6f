// trireme train, trireme plan.
#include <optional>

#include "parallel/agree.h"
#include "train/commands.h"
#include "train/log.h"
#include "train/nearest.h"
#include "train/trainer.h"

namespace trireme {
namespace {

// ConfigError, with the nearest mesh that can be, when the config cannot run on so many ranks.
void require_mesh(const RunConfig& config, int64_t ranks, int64_t memory) {
  const std::string problems = mesh_problems(config, ranks, memory);
  if (problems.empty()) return;
  const std::optional<std::string> nearest = nearest_mesh(config, ranks, memory);
  const std::string some = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  throw ConfigError(
      problems + "; " +
      (nearest ? "the nearest that can be on " + some + ": " + *nearest : "no mesh of " + some + " can run this config"));
}

// Rank 0 reads and checks the config before anything is taken; the others hear it, or that there is none and why was told.
std::optional<RunConfig> agree_on_config(const TrainOptions& options, const World& world, const Comm& all) {
  const auto read = [&] {
    const RunConfig config = read_config(options.config, options.set);
    require_mesh(config, world.size(), 0);
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
  } catch (const ConfigError& error) {
    complain(error.what());  // before another rank ends: launchers then end all
    broadcast(all, "");
    return std::nullopt;
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
