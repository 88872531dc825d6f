// RecordSinks: where a run's records go beside metrics.jsonl, as the config's section `report` says.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "train/telemetry/config.h"
#include "train/telemetry/http_server.h"
#include "train/telemetry/record_readers.h"
#include "train/telemetry/run_metrics.h"

namespace trireme {

class RecordSinks {
 public:
  // `before`: seconds of the steps before a resume.
  RecordSinks(const ReportConfig& config, const std::string& directory, const RunFacts& facts, double before);
  RecordSinks(const RecordSinks&) = delete;
  RecordSinks& operator=(const RecordSinks&) = delete;

  // None of these waits for a disk or for a client.
  void send(const RunRecord& record);
  void busy(bool busy);  // see RunMetrics
  std::vector<std::string> take_warnings();

  void finish();  // waits until all is written, for some seconds at most; the port stays open

 private:
  void add(std::unique_ptr<RecordReader> reader);
  void serve(const ReportConfig& config);
  HttpAnswer page(const std::string& path) const;

  RunMetrics metrics_;
  std::deque<RecordQueue> queues_;
  std::unique_ptr<HttpServer> server_;
  std::vector<std::string> warnings_;
};

}  // namespace trireme
