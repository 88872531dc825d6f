// Facts about this build: version, commit, compiler and back-ends. CMake writes their source (cmake/build_facts.cmake).
#pragma once

#include <string>

namespace trireme {

struct BuildFacts {
  std::string version;      // "0.2.0"
  std::string commit;       // 40 hexadecimal digits, or "unknown" outside of a checkout and of a git archive
  std::string commit_date;  // "2026-02-03" in the committer's time zone; empty when the commit is unknown
  bool changed;             // sources differ from the commit
  std::string compiler;     // "g++ 12.2.0"
  std::string processor;    // -march of the CPU kernels: "native", "x86-64-v3"
  std::string cuda;         // CUDA's version, "13.0"; empty: built without
  bool nccl, cudnn;         // compiled in; their libraries are looked for at run time
};
BuildFacts build_facts();

}  // namespace trireme
