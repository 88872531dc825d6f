// trireme train, supervise, plan.
#include <optional>

#include "parallel/host_collectives.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/config/config.h"
#include "train/health/last_words.h"
#include "train/health/signals.h"
#include "train/run/device_choice.h"
#include "train/run/launch_agreement.h"
#include "train/run/mesh_suggestion.h"
#include "train/run/stop_notice.h"
#include "train/run/supervise.h"
#include "train/run/trainer.h"
#include "train/step/run_cost.h"
#include "train/step/storage.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct TrainOptions {
  static constexpr auto name = "train";
  static constexpr auto about = "Train the model of a config; resumes a run that ended early";
  std::string config, resume = "auto", profile;
  std::vector<std::string> set;
  bool resume_allow = false;

  void visit(Options& o) {
    o("config", config, "YAML file, such as configs/quickstart.yaml").required();
    o.set(set);
    o("--resume", resume, "Checkpoint to resume from: a directory, never, or auto for the newest of the run, if any");
    o("--profile", profile, "Steps to trace op by op, such as 10-12: short for --set train.profile=[10-12]");
    o("--resume-allow", resume_allow, "Resume even if keys changed that make it another run; default: refuse");
  }
  static std::string footer() { return config_help(); }
};

struct SuperviseCommandOptions : SuperviseOptions {
  static constexpr auto name = "supervise";
  static constexpr auto about = "Restart a training when it fails: trireme supervise -- mpirun -n 8 trireme train config.yaml";
  void visit(Options& o) {
    o("--max-restarts", max_restarts, "Most restarts in a row without a new checkpoint", at_least(0));
    o("--elastic", elastic,
      "Continue with fewer ranks when the same one fails twice without a new checkpoint; default: the same number");
    o("--frozen-after", frozen_after, "Seconds without processor time after which stopped ranks are ended, 0 for never",
      at_least(0));
    o("--fetch", fetch,
      "Command that fetches uploaded checkpoints into $TRIREME_RUN, run before a start without any; default: none");
    o("--exclude-bad", exclude_bad, "Continue without hosts that failed, on spare ones if there are any; default: with them");
    o("--hostfile", hostfile,
      "Hosts to choose from, as in HOST slots=N; default: the hostfile of mpirun, or the nodes of the Slurm job")
        .needs("--exclude-bad");
    o.after_dashes(command);
  }
  static std::string footer() { return "Write the command after --, as you would give it alone."; }
};

struct PlanOptions {
  static constexpr auto name = "plan";
  static constexpr auto about = "Count memory, FLOPs, traffic and parameters of a config, without computing";
  std::string config, memory, storage, speed;
  std::vector<std::string> set;
  int64_t ranks = 1, ranks_per_node = 8;
  double watts = 0;
  std::string json;

  void visit(Options& o) {
    o("config", config, "YAML file").required();
    o.set(set);
    o("--ranks", ranks, "Ranks to plan for", at_least(1));
    o("--storage", storage,
      "The file system that all ranks share, for the times of saves and restores: bytes written and read a second and files "
      "opened a second, such as 100GB,200GB,50000");
    o("--memory", memory, "Memory of each rank, such as 80GB, to suggest the nearest mesh that fits; default: no limit");
    o("--speed", speed,
      "What a rank computes a second over whole steps, such as 400TFLOPS (products and causal attention, as MFU counts them), for "
      "the run's time, energy and cost by train.price; default: none of them");
    o("--watts", watts, "Watts of a rank with its share of the machine, for the run's energy; 0: unknown", at_least(0)).needs("--speed");
    o("--ranks-per-node", ranks_per_node, "Ranks of a machine, for prices per node-hour", at_least(1)).needs("--speed");
    o.json(json);
  }
};

ExitCode run_train(const TrainOptions& options) {
  note_doing("starting");
  World world({.say = complain, .until_watched = true});
  note_rank(world.rank(), world.size());
  try {
    const Comm all("all", 0, world.rank(), world.launched());
    const auto [config, refusal] = agree_on_config(all, [&] {
      std::vector<std::string> set = options.set;
      if (!options.profile.empty()) set.push_back("train.profile=[" + options.profile + "]");
      RunConfig read = read_config(options.config, set, Purpose::start);
      choose_device(read);
      require_mesh(read, world.size(), 0);
      return read;
    });
    if (!config) return refusal;
    if (const int64_t signal = largest(all, stop_signal()); signal != 0) {
      if (world.rank() == 0) complain(stopped_line(static_cast<int>(signal), 0));
      return ExitCode::stopped;
    }
    return train(*config, world, {.from = options.resume, .allow_changes = options.resume_allow});
  } catch (const std::exception& error) {
    if (world.size() > 1 && code_of(error) == ExitCode::internal)
      end_all_ranks(world, nullptr, error);  // others wait for this rank
    throw;
  }
}

ExitCode run_plan(const PlanOptions& options) {
  JsonOutput json(options.json);
  RunConfig config = read_config(options.config, options.set, Purpose::mesh);
  choose_device(config);
  const std::optional<int64_t> memory = options.memory.empty() ? 0 : parse_bytes(options.memory);
  if (!memory) throw ConfigError("--memory " + options.memory + ": must be a size such as 80GB or 75.5GiB");
  const std::optional<Storage> storage = options.storage.empty() ? std::nullopt : std::optional(parse_storage(options.storage));
  const Speed speed{.flops_per_second = options.speed.empty() ? 0 : parse_speed(options.speed),
                    .watts = options.watts,
                    .ranks_per_node = options.ranks_per_node};
  require_mesh(config, options.ranks, *memory);
  const std::vector<Plan> stages = stage_plans(config, options.ranks);
  const CheckpointSize checkpoint = checkpoint_size(config, options.ranks);
  std::string table = plan_table(config, stages, checkpoint);
  Json found = plan_json(config, stages, checkpoint);
  if (storage) {
    const StorageTimes times = storage_times(config, checkpoint, options.ranks, *storage);
    table += storage_lines(config, times);
    found["storage"] = storage_json(times);
  }
  if (speed.flops_per_second > 0) {
    const RunCost cost = run_cost(config, stages, options.ranks, speed);
    table += run_cost_lines(cost, speed);
    found["run"] = run_cost_json(cost);
  }
  say(table);
  if (const std::string problem = checkpoint.problem(); !problem.empty()) complain("warning: " + problem);
  json.write(found);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> train_command() { return make_command<TrainOptions>(run_train); }
std::unique_ptr<Command> supervise_command() { return make_command<SuperviseCommandOptions>(run_supervise); }
std::unique_ptr<Command> plan_command() { return make_command<PlanOptions>(run_plan); }

}  // namespace trireme
