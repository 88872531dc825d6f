// RunCost: how long a whole run takes at a given speed, and the energy and money that it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/step/plan.h"

namespace trireme {

// Speed of a rank, and the machines that have ranks.
struct Speed {
  double flops_per_second = 0;  // model FLOPs of a rank over whole steps, as MFU counts them
  double watts = 0;             // of a rank with its share of the machine; 0: unknown
  int64_t ranks_per_node = 8;   // for prices per node-hour
};

// Parses what a rank computes a second: "400TFLOPS", "1.2e15". ConfigError.
double parse_speed(const std::string& words);

struct RunCost {
  double tokens = 0, flops = 0;       // of the run and all its ranks
  double step = 0, seconds = 0;       // of a step, of the run; without failures and evaluations
  double rank_hours = 0;
  std::optional<double> kwh{};        // by watts
  std::optional<double> co2_grams{};  // by watts and train.grid_gco2_per_kwh
  std::optional<double> price{};      // by train.price; one GPU a rank
  std::string currency{};
};
RunCost run_cost(const RunConfig& config, const std::vector<Plan>& stages, int64_t ranks, const Speed& speed);

// Lines under a plan's table.
std::string run_cost_lines(const RunCost& cost, const Speed& speed);
Json run_cost_json(const RunCost& cost);

}  // namespace trireme
