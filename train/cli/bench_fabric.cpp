// trireme bench fabric: bandwidth of collectives by size, along each axis of a mesh, as nccl-tests prints it.
#include <algorithm>
#include <optional>

#include "base/number_format.h"
#include "parallel/host_collectives.h"
#include "train/cli/bench_table.h"
#include "train/cli/commands.h"
#include "train/cli/fabric_ranks.h"
#include "train/cli/json_output.h"
#include "train/run/bus_rates.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct BenchFabricOptions {
  static constexpr auto name = "bench fabric";
  static constexpr auto about = "Measure bandwidth between ranks by size and axis of the mesh, as nccl-tests does";
  std::string config, json, least = "1KiB", most = "64MiB";
  std::vector<std::string> set;
  double seconds = 0.1;
  void visit(Options& o) {
    o("config", config, "YAML file whose mesh is measured; default: one axis of all ranks");
    o("--least", least, "Smallest tensor");
    o("--most", most, "Largest tensor; sizes grow by four");
    o("--seconds", seconds, "Time for each size of each collective, at most", above(0));
    o.json(json);
    o.set(set).needs("config");
  }
};

int64_t size_option(const char* option, const std::string& words) {
  const std::optional<int64_t> bytes = parse_bytes(words);
  if (!bytes || *bytes < 4 || *bytes > int64_t{1} << 32)
    throw ConfigError(std::string(option) + " " + words + ": must be a size from 4 bytes to 4GiB, such as 64MiB");
  return *bytes;
}

// On GPUs, messages have connections along the pipeline alone.
bool can_measure(const FabricRanks& ranks, const Comm& axis, BusOp op) {
  return op != BusOp::send_receive || ranks.device.place() == Place::cpu || &axis == &ranks.mesh.pp();
}

void say_rate(const std::string& axis, const BusRate& rate) {
  say(row("%-5s %-15s %6ld %12ld %12.1f %10.3f %10.3f %7ld", axis.c_str(), std::string(name_of(rate.op)).c_str(),
          static_cast<long>(rate.ranks), static_cast<long>(rate.bytes), 1e6 * rate.seconds, rate.algorithm() / 1e9,
          rate.bus() / 1e9, static_cast<long>(rate.wrong)));
}

Json json_of(const std::string& axis, const BusRate& rate) {
  return {{"axis", axis},
          {"op", std::string(name_of(rate.op))},
          {"group_ranks", rate.ranks},
          {"bytes", rate.bytes},
          {"seconds", rate.seconds},
          {"algorithm_bytes_per_second", rate.algorithm()},
          {"bus_bytes_per_second", rate.bus()},
          {"wrong_elements", rate.wrong}};
}

ExitCode bench_on_ranks(const BenchFabricOptions& options, FabricRanks& ranks) {
  const bool speaks = ranks.world.rank() == 0;
  JsonOutput json(speaks ? options.json : "");
  const int64_t least = size_option("--least", options.least), most = size_option("--most", options.most);
  if (least > most) throw ConfigError("--least " + options.least + ": must not exceed --most " + options.most);
  Json rates = Json::array();
  if (speaks) {
    say(row("%s, %ld ranks; algbw and busbw in GB/s as in nccl-tests", device_name(ranks.device).c_str(),
            static_cast<long>(ranks.all.size())));
    say(row("%-5s %-15s %6s %12s %12s %10s %10s %7s", "axis", "op", "ranks", "bytes", "us", "algbw", "busbw", "wrong"));
  }
  BusTrial trial(ranks.all, ranks.device, most);
  int64_t wrong = 0;
  for (const Comm& axis : ranks.mesh.axes())
    for (const BusOp op : kBusOps)
      for (int64_t bytes = least; bytes <= most && axis.size() > 1 && can_measure(ranks, axis, op); bytes *= 4) {
        const BusRate rate = trial.measure(axis, op, bytes, options.seconds);
        const std::string name = ranks.config != nullptr ? axis.axis() : "all";
        if (speaks) say_rate(name, rate);
        rates.push_back(json_of(name, rate)), wrong += rate.wrong;
      }
  if (speaks && ranks.all.size() == 1) say("one rank has no links: start it under mpirun or srun");
  if (speaks) json.write({{"device", device_name(ranks.device)}, {"ranks", ranks.all.size()}, {"rates", rates}});
  require(wrong == 0, text(wrong, " elements of collectives are wrong: see the table"));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> bench_fabric_command() {
  return make_command<BenchFabricOptions>([](const BenchFabricOptions& options) {
    return on_fabric_ranks(options.config, options.set, [&](FabricRanks& ranks) { return bench_on_ranks(options, ranks); });
  });
}

}  // namespace trireme
