#include "train/run/launch_agreement.h"

#include <chrono>
#include <thread>

#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "train/health/last_words.h"
#include "train/run/mesh_suggestion.h"
#include "train/telemetry/log.h"

namespace trireme {

void require_mesh(const RunConfig& config, int64_t ranks, int64_t memory) {
  const std::string problems = mesh_problems(config, ranks, memory);
  if (problems.empty()) return;
  const std::string some = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (const std::optional<std::string> nearest = nearest_mesh(config, ranks, memory))
    throw ConfigError(problems + "; the nearest mesh that works on " + some + ": " + *nearest);
  const std::string none = problems + "; no mesh of " + some + " can run this config";
  const std::optional<FittingMesh> larger = memory > 0 ? fewest_ranks(config, ranks, memory) : std::nullopt;
  if (!larger) throw ConfigError(none);
  throw ConfigError(none + ", but --ranks " + std::to_string(larger->ranks) + " fits" + larger->with_settings());
}

AgreedConfig agree_on_config(const Comm& all, const std::function<RunConfig()>& read) {
  if (all.size() == 1) return {.config = read()};
  if (all.rank() > 0) {
    const std::string yaml = broadcast(all, "");
    if (!yaml.empty()) return {.config = parse_config("rank 0's config", yaml)};
    return {.config = {}, .refusal = static_cast<ExitCode>(std::stoi(broadcast(all, "")))};
  }
  AgreedConfig agreed;
  std::string yaml;
  try {
    agreed.config = read();
    yaml = to_yaml(*agreed.config);
  } catch (const std::exception& error) {
    complain(describe_failure(error));  // before another rank ends, since launchers then end all
    broadcast(all, "");
    broadcast(all, std::to_string(static_cast<int>(code_of(error))));
    return {.config = {}, .refusal = code_of(error)};
  }
  broadcast(all, yaml);
  return agreed;
}

void end_all_ranks(const World& world, const RunConfig* config, const std::exception& error, const std::function<void()>& leave) {
  constexpr std::chrono::milliseconds kPatience{2000};  // so that rank 0 reports an error that all ranks met
  if (world.rank() > 0) std::this_thread::sleep_for(kPatience);
  try {
    if (leave) leave();
    const std::string who =
        config != nullptr ? Mesh(world.rank(), world.size(), config->parallel).describe() : "rank " + std::to_string(world.rank());
    complain("[" + who + "] " + describe_failure(error));
  } catch (const std::exception&) {  // the report itself finds no memory
    speak_last_words("out of memory");
  }
  world.abort(code_of(error));
}

}  // namespace trireme
