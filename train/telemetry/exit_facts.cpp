#include "train/telemetry/exit_facts.h"

#include "base/file.h"
#include "base/json.h"

namespace trireme {

std::optional<ExitFacts> recorded_exit(const std::string& path) {
  const Json exit = Json::parse_or_null(text_of_file(path, 1 << 20));
  if (!exit.is_object()) return std::nullopt;
  const auto words = [&](const char* name) {
    const Json* const found = exit.find(name);
    return found != nullptr && found->is_string() ? found->string() : std::string();
  };
  ExitFacts facts;
  facts.code = exit.integer_or("code", -1), facts.rank = exit.integer_or("rank", -1), facts.step = exit.integer_or("step", -1);
  facts.cause = words("cause"), facts.host = words("host"), facts.message = words("message");
  return facts;
}

}  // namespace trireme
