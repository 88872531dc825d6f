#include "train/telemetry/energy_record.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace trireme {
namespace {

constexpr int64_t kWindow = 4 << 20, kLongestRecord = 1 << 16;  // bytes that are searched at once; a longer line is passed over

double number_or_zero(const Json& line, const char* name) {
  const Json* const found = line.find(name);
  return found != nullptr && found->is_number() ? found->get<double>() : 0;
}

// The last line of the text that has totals of this run; null if there is none.
Json last_totals(const std::string& text, const std::string& run) {
  constexpr std::string_view mark = "\"rank_hours\"";
  for (size_t at = text.rfind(mark); at != std::string::npos; at = at > 0 ? text.rfind(mark, at - 1) : std::string::npos) {
    const size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
    Json line = Json::parse_or_null(std::string_view(text).substr(begin, end == std::string::npos ? end : end - begin));
    const Json* const its = line.find("run");
    if (its != nullptr && *its == run) return line;
  }
  return {};
}

}  // namespace

EnergyTotals energy_totals_before(const std::string& directory, const std::string& run) try {
  const File file = File::open_to_read(directory + "/metrics.jsonl");
  const int64_t size = file.size();
  for (int64_t begin = size, end = size; begin > 0; end = std::min(size, begin + kLongestRecord)) {
    begin = std::max<int64_t>(0, begin - kWindow);
    std::string text(static_cast<size_t>(end - begin), '\0');
    file.read_at(text.data(), end - begin, begin);
    const Json line = last_totals(text, run);
    if (line.is_null()) continue;
    return {.joules = number_or_zero(line, "kwh") * kJoulesPerKwh,
            .co2_grams = number_or_zero(line, "co2_g"),
            .cost = number_or_zero(line, "cost"),
            .rank_hours = number_or_zero(line, "rank_hours"),
            .metered_tokens = number_or_zero(line, "metered_tokens")};
  }
  return {};
} catch (const DataError&) {
  return {};
}

}  // namespace trireme
