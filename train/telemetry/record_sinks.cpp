#include "train/telemetry/record_sinks.h"

#include <utility>

#include "base/number_format.h"
#include "train/telemetry/tensorboard_file.h"

namespace trireme {

RecordSinks::RecordSinks(const ReportConfig& config, const std::string& directory, const RunFacts& facts, double before)
    : metrics_(facts, before) {
  if (config.tensorboard) add(std::make_unique<TensorBoardFile>(directory, facts.restored));
  if (!config.prometheus_file.empty()) add(std::make_unique<RunMetricsFile>(facts, before, config.prometheus_file));
  if (config.metrics_port > 0) serve(config);
}

void RecordSinks::add(std::unique_ptr<RecordReader> reader) {
  const std::string name = reader->name();
  try {
    queues_.emplace_back(std::move(reader));
  } catch (const std::exception& error) {
    warnings_.push_back("warning: " + name + ": " + error.what() + "; the run continues without it");
  }
}

void RecordSinks::serve(const ReportConfig& config) try {
  server_ = std::make_unique<HttpServer>(config.metrics_host, config.metrics_port,
                                         [this](const std::string& path) { return page(path); });
} catch (const std::exception& error) {
  warnings_.push_back(std::string("warning: report.metrics_port: ") + error.what() + "; the run continues without it");
}

HttpAnswer RecordSinks::page(const std::string& path) const {
  if (path == "/metrics") return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text()};
  if (path != "/healthz") return {.status = 404, .body = "/metrics and /healthz are here\n"};
  const RunMetrics::Pulse pulse = metrics_.pulse();
  if (pulse.healthy()) return {.body = "ok\n"};
  return {.status = 503,
          .body = text("no step for ", human_seconds(pulse.silent), ", which is more than ", human_seconds(pulse.usual), "\n")};
}

void RecordSinks::send(const RunRecord& record) {
  if (server_) metrics_.add(record);
  for (RecordQueue& queue : queues_) queue.send(record);
}

void RecordSinks::busy(bool busy) {
  if (server_) metrics_.busy(busy);
}

void RecordSinks::finish() {
  for (RecordQueue& queue : queues_) queue.finish();
}

std::vector<std::string> RecordSinks::take_warnings() {
  std::vector<std::string> all = std::exchange(warnings_, {});
  for (RecordQueue& queue : queues_)
    for (std::string& warning : queue.take_warnings()) all.push_back(std::move(warning));
  return all;
}

}  // namespace trireme
