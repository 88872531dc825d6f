// trireme doctor --fabric: the check of a run's machines under its own launcher.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace trireme {

struct FabricDoctorOptions {
  std::string config;  // "": none
  std::vector<std::string> set;
  std::string json;
};

// ExitCode::machine if a finding condemns a host.
ExitCode run_fabric_doctor(const FabricDoctorOptions& options);

}  // namespace trireme
