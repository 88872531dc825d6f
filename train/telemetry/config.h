// The `report:` section: where a run's records are also written, beside metrics.jsonl.
#pragma once

#include <string>

#include "base/key.h"

namespace trireme {

struct ReportConfig {
  bool tensorboard = false;
  std::string prometheus_file{};
  int64_t metrics_port = 0;
  std::string metrics_host = "127.0.0.1";
  std::string powercap = "/sys/class/powercap";

  void visit(auto& keys) {
    keys("tensorboard", tensorboard, "write TensorBoard's event files into the run directory");
    keys("prometheus_file", prometheus_file,
         "file in Prometheus's text format, replaced once a second: for the textfile collector of node_exporter, its name ends "
         "in .prom; empty: none",
         paths());
    keys("metrics_port", metrics_port, "TCP port on which rank 0 serves /metrics to Prometheus, and /healthz; 0: none",
         between(0, 65535));
    keys("metrics_host", metrics_host, "address of this machine on which the port is open, a number; 0.0.0.0: all of them");
    keys("powercap", powercap, "directory of Linux's energy counters of processors (RAPL); empty: they are not read", paths());
  }
};

}  // namespace trireme
