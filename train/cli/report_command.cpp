// trireme report: a run as one page to hand on.
#include <chrono>
#include <filesystem>

#include "base/clock.h"
#include "base/replace_file.h"
#include "train/cli/commands.h"
#include "train/cli/output_path.h"
#include "train/run/run_view.h"
#include "train/telemetry/log.h"
#include "train/telemetry/report.h"
#include "train/telemetry/report_sections.h"

namespace trireme {
namespace {

struct ReportOptions {
  static constexpr auto name = "report";
  static constexpr auto about = "Write a run as one page to show others: curves, goodput, incidents, config, data, cost";
  std::string run, output;
  void visit(Options& o) {
    o("run", run, "Directory of a run").required();
    o("--output", output, "HTML file that needs no other; default: NAME.html in the working directory");
  }
  static std::string footer() { return "For a PDF, print the page from a browser: it has a style for paper."; }
};

ExitCode run_report(const ReportOptions& options) {
  RunView view(options.run);
  const RunPicture& run = view.update(std::chrono::hours(24));
  const std::string path = options.output.empty() ? run.title + ".html" : options.output;
  const PreparedOutput prepared = prepare_output(path, OutputKind::replaced_file);
  if (!write_output(path, render_report(report_of(run)))) throw unwritable(path);
  say(std::string(text(path, ": ", run.title, ", ", name_of(run.state), " at step ", run.history.last.step)));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> report_command() { return make_command<ReportOptions>(run_report); }

}  // namespace trireme
