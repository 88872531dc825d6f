// Lists of measurements, sent between the ranks as JSON.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "parallel/host_collectives.h"
#include "train/health/fabric_facts.h"

namespace trireme {

template <class Facts>
Json json_of_all(const std::vector<Facts>& list) {
  Json all = Json::array();
  for (const Facts& facts : list) all.push_back(json_of_facts(facts));
  return all;
}

template <class Facts>
std::vector<Facts> facts_of_all(const Json& json) {
  std::vector<Facts> all;
  for (const Json& item : json.items()) all.push_back(facts_of_json<Facts>(item));
  return all;
}

// Every rank's list, in their order; on rank 0.
template <class Facts>
std::vector<Facts> gather_facts(const Comm& all, const std::vector<Facts>& mine) {
  std::vector<Facts> found;
  for (const std::string& theirs : gather(all, json_of_all(mine).dump()))
    if (!theirs.empty()) std::ranges::move(facts_of_all<Facts>(Json::parse(theirs)), std::back_inserter(found));
  return found;
}

// Rank 0's list, on every rank.
template <class Facts>
std::vector<Facts> broadcast_facts(const Comm& all, const std::vector<Facts>& mine) {
  return facts_of_all<Facts>(Json::parse(broadcast(all, json_of_all(mine).dump())));
}

}  // namespace trireme
