// Planted faults: what the simulation must find. Each changes what the system does for the product,
// as if the product had left out or exchanged a call.
#pragma once

#include <array>
#include <string>

#include "test/simulation/schedule.h"
#include "test/simulation/world.h"

namespace trireme::simulation {

constexpr std::array kPlanted{Planted::directories_unsynced, Planted::files_unsynced, Planted::lock_unchecked, Planted::lock_shared,
                              Planted::deletes_early};

std::string name_of(Planted planted);
Planted planted_of(const std::string& name);  // none: no such fault
void plant(World& world, Planted planted);

}  // namespace trireme::simulation
