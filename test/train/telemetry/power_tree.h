// A made-up tree of Linux's energy counters, and made-up GPUs for the stand-in of NVIDIA's library.
#pragma once

#include <filesystem>
#include <string>

#include "test/data/scratch.h"

namespace trireme {

inline const std::string kNvmlDirectory = TRIREME_BUILD "/test/nvml", kStandInNvml = kNvmlDirectory + "/libnvidia-ml.so.1";

class PowerTree {
 public:
  void domain(const std::string& directory, const std::string& name, const std::string& microjoules,
              const std::string& range = "262143328850") const {
    std::filesystem::create_directories(scratch_ / directory);
    write_text(scratch_ / (directory + "/name"), name + "\n");
    write_text(scratch_ / (directory + "/max_energy_range_uj"), range + "\n");
    set(directory, microjoules);
  }
  void set(const std::string& directory, const std::string& microjoules) const {
    write_text(scratch_ / (directory + "/energy_uj"), microjoules + "\n");
  }
  const std::string& path() const { return scratch_.path(); }

 private:
  Scratch scratch_;
};

// Sets NVML_STANDIN for its lifetime.
class StandInGpus {
 public:
  StandInGpus() { setenv("NVML_STANDIN", file().c_str(), 1); }
  ~StandInGpus() { unsetenv("NVML_STANDIN"); }
  StandInGpus(const StandInGpus&) = delete;
  StandInGpus& operator=(const StandInGpus&) = delete;

  std::string file() const { return scratch_ / "gpus"; }
  void are(const std::string& lines) const {  // replaced whole
    write_text(scratch_ / "new", lines);
    std::filesystem::rename(scratch_ / "new", file());
  }

 private:
  Scratch scratch_;
};

}  // namespace trireme
