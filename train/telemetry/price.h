// Price: what a config says that an hour of training costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

// The machines of a start, by which an hour is charged.
struct Machines {
  int64_t ranks = 1, nodes = 1, gpus = 0;
};

struct Price {
  enum class Per { gpu, rank, node };
  double amount = 0;
  std::string currency{};
  Per per = Per::rank;

  // The price of an hour of all machines; nothing if it is per GPU and there is none.
  std::optional<double> per_hour(const Machines& machines) const;
};

constexpr auto kPriceForm = "\"AMOUNT CURRENCY/gpu-hour\", or /rank-hour, or /node-hour, such as \"2.5 EUR/gpu-hour\"";

std::optional<Price> parse_price(const std::string& words);  // in this form; nothing for other words

}  // namespace trireme
