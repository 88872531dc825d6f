// trireme config schema.
#include "train/cli/commands.h"
#include "train/config/config_schema.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct ConfigSchemaOptions {
  static constexpr auto name = "config schema";
  static constexpr auto about = "Print a JSON Schema of the config, for editors";
  void visit(Options&) {}
};

ExitCode run_config_schema(const ConfigSchemaOptions&) {
  say_part(config_schema());
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> config_schema_command() { return make_command<ConfigSchemaOptions>(run_config_schema); }

}  // namespace trireme
