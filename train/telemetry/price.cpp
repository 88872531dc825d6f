#include "train/telemetry/price.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace trireme {

std::optional<double> Price::per_hour(const Machines& machines) const {
  if (per == Per::gpu && machines.gpus == 0) return std::nullopt;
  const int64_t count = per == Per::gpu ? machines.gpus : per == Per::node ? machines.nodes : machines.ranks;
  return amount * static_cast<double>(count);
}

std::optional<Price> parse_price(const std::string& words) {
  constexpr std::array<std::pair<std::string_view, Price::Per>, 3> units{
      {{"/gpu-hour", Price::Per::gpu}, {"/rank-hour", Price::Per::rank}, {"/node-hour", Price::Per::node}}};
  Price price;
  const char* const end = words.data() + words.size();
  const auto [at, status] = std::from_chars(words.data(), end, price.amount);
  if (status != std::errc() || !std::isfinite(price.amount) || price.amount < 0 || at == end || *at != ' ') return std::nullopt;
  const std::string_view rest(at + 1, static_cast<size_t>(end - at - 1));
  const auto unit = std::ranges::find_if(units, [&](const auto& u) { return rest.ends_with(u.first); });
  if (unit == units.end()) return std::nullopt;
  price.per = unit->second;
  price.currency = rest.substr(0, rest.size() - unit->first.size());
  const auto odd = [](unsigned char c) { return c <= ' ' || c == '/' || c == '"' || c == '\\' || c == 127; };
  if (price.currency.empty() || price.currency.size() > 16 || std::ranges::any_of(price.currency, odd)) return std::nullopt;
  return price;
}

}  // namespace trireme
