#include "train/cli/fabric_ranks.h"

#include "kernels/cuda_machine.h"
#include "train/run/device_choice.h"
#include "train/run/launch_agreement.h"
#include "train/telemetry/log.h"

namespace trireme {

ExitCode on_fabric_ranks(const std::string& config, const std::vector<std::string>& set,
                         const std::function<ExitCode(FabricRanks&)>& work) {
  World world({.say = complain, .warn = 120, .until_watched = true});
  const auto failed = [&world](const std::exception& error) {
    if (world.size() > 1) end_all_ranks(world, nullptr, error);  // others wait for this rank
  };
  try {
    const Comm all = world.size() > 1 ? Comm("all", 0, world.rank(), true) : Comm("all", 0, 1);
    const bool given = !config.empty();
    AgreedConfig agreed{.config = RunConfig{}};
    if (given)
      agreed = agree_on_config(all, [&] {
        RunConfig found = read_config(config, set, Purpose::plan);
        choose_device(found);
        require_mesh(found, world.size(), 0);
        return found;
      });
    auto& [read, refusal] = agreed;
    if (!read) return refusal;
    if (!given) use_gpu(world.local_rank()), choose_device(*read);  // each rank tries a GPU of its own
    Device device = open_device(read->kernels_of_run(), world.core_sharers(), world.local_rank());
    Mesh mesh(world, read->parallel);
    mesh.connect(device);
    FabricRanks ranks{.world = world, .all = all, .mesh = mesh, .device = device, .config = given ? &*read : nullptr};
    try {
      return work(ranks);
    } catch (const std::exception& error) {
      failed(error);  // while the mesh and the device still exist
      throw;
    }
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

}  // namespace trireme
