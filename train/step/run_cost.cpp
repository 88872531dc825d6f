#include "train/step/run_cost.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/number_format.h"

namespace trireme {
namespace {

constexpr double kHour = 3600;  // seconds
constexpr double kWattsPerKilowatt = 1000;

Json known_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

double parse_speed(const std::string& words) {
  constexpr std::array<std::pair<std::string_view, double>, 5> units{
      {{"", 1}, {"FLOPS", 1}, {"GFLOPS", 1e9}, {"TFLOPS", 1e12}, {"PFLOPS", 1e15}}};
  double speed = 0;
  const char* const end = words.data() + words.size();
  const auto [stop, status] = std::from_chars(words.data(), end, speed);
  std::string unit(stop, end);
  std::erase(unit, ' ');
  for (const auto& [name, factor] : units)
    if (status == std::errc() && unit == name && speed > 0 && std::isfinite(speed * factor)) return speed * factor;
  throw ConfigError("--speed " + words + ": must be what a rank computes a second, such as 400TFLOPS");
}

RunCost run_cost(const RunConfig& config, const std::vector<Plan>& stages, int64_t ranks, const Speed& speed) {
  double flops = 0;  // of a step, on average over the ranks
  for (const Plan& stage : stages) flops += stage.model_flops() / static_cast<double>(stages.size());
  const auto steps = static_cast<double>(config.train.steps);
  RunCost cost{.tokens = steps * static_cast<double>(stages.front().tokens),
               .flops = steps * flops * static_cast<double>(ranks),
               .step = flops / speed.flops_per_second};
  cost.seconds = steps * cost.step;
  const double hours = cost.seconds / kHour;
  cost.rank_hours = hours * static_cast<double>(ranks);
  if (speed.watts > 0) cost.kwh = cost.rank_hours * speed.watts / kWattsPerKilowatt;
  if (cost.kwh && config.train.grid_gco2_per_kwh > 0) cost.co2_grams = *cost.kwh * config.train.grid_gco2_per_kwh;
  const std::optional<Price> price = parse_price(config.train.price);
  if (!price) return cost;
  const int64_t nodes = (ranks + speed.ranks_per_node - 1) / speed.ranks_per_node;
  cost.price = hours * *price->per_hour({.ranks = ranks, .nodes = nodes, .gpus = ranks});
  cost.currency = price->currency;
  return cost;
}

std::string run_cost_lines(const RunCost& cost, const Speed& speed) {
  std::string lines = "\nThe whole run, if a rank computes " + human_si(speed.flops_per_second) + "FLOP a second\n  work     " +
                      human_count(cost.tokens) + " tokens, " + human_si(cost.flops) + "FLOP\n  time     " +
                      human_seconds(cost.seconds) + ", " + human_count(cost.rank_hours) + " rank-hours; a step takes " +
                      human_seconds(cost.step) + "; without failures and evaluations\n";
  if (cost.kwh) lines += "  energy   " + human_si(*cost.kwh * kWattsPerKilowatt) + "Wh";
  if (cost.co2_grams) lines += ", " + human_si(*cost.co2_grams) + "g CO2";
  if (cost.kwh) lines += "\n";
  if (cost.price) lines += "  cost     " + fixed(*cost.price, 2) + " " + cost.currency + "\n";
  return lines;
}

Json run_cost_json(const RunCost& cost) {
  return {{"tokens", cost.tokens},
          {"flops", cost.flops},
          {"step_seconds", cost.step},
          {"seconds", cost.seconds},
          {"rank_hours", cost.rank_hours},
          {"kwh", known_or_null(cost.kwh)},
          {"co2_g", known_or_null(cost.co2_grams)},
          {"price", known_or_null(cost.price)},
          {"currency", cost.currency}};
}

}  // namespace trireme
