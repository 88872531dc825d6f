// Measurements of a run's machines before its first step: of each rank, of links between ranks, and of sums along the mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace trireme {

// Measured by one rank.
struct MachineFacts {
  std::string host, kind;          // ranks of one kind compute the same bits at the same rate: processor, instructions, threads
  std::string program, libraries;  // version and digest of the program; names of library files, separated by blanks
  bool gpu = false, shares_cores = false;
  double products = 0, products_spread = 0;  // FLOP/s of the best window; 1 - rate of the third best / the best
  std::string product_bits;                  // digest of the first product
  int64_t products_checked = 0, products_differ = 0;
  double copies = 0, copies_spread = 0;         // bytes/s, read and written
  int64_t memory_bytes = 0, memory_errors = 0;  // written and read again; 8-byte words that differ
  double clock_ahead = 0, clock_margin = 0;     // seconds, relative to rank 0
  double disk_rate = 0, disk_free = -1;         // bytes/s, 0: not measured by this rank; bytes, -1: unknown
  std::string disk_problem;                     // why the directory cannot be written

  void visit(auto&& field) {
    field("host", host), field("kind", kind), field("program", program), field("libraries", libraries);
    field("gpu", gpu), field("shares_cores", shares_cores);
    field("product_flops_per_second", products), field("product_spread", products_spread), field("product_bits", product_bits);
    field("products_checked", products_checked), field("products_differ", products_differ);
    field("copy_bytes_per_second", copies), field("copy_spread", copies_spread);
    field("memory_bytes", memory_bytes), field("memory_errors", memory_errors);
    field("clock_ahead_seconds", clock_ahead), field("clock_margin_seconds", clock_margin);
    field("disk_bytes_per_second", disk_rate), field("disk_free_bytes", disk_free), field("disk_problem", disk_problem);
  }
};

// Messages between two ranks, there and back.
struct LinkFacts {
  int64_t from = 0, to = 0, bytes = 0;
  double rate = 0;  // bytes/s, one way
  void visit(auto&& field) { field("from", from), field("to", to), field("bytes", bytes), field("bytes_per_second", rate); }
};

// An all_reduce of one group along an axis.
struct GroupFacts {
  std::string axis;
  int64_t first = 0, size = 1, bytes = 0;  // first: its first rank in the world
  double rate = 0;                         // bytes/s: the sum's bytes over its time
  void visit(auto&& field) {
    field("axis", axis), field("first", first), field("size", size), field("bytes", bytes), field("bytes_per_second", rate);
  }
};

struct FabricFacts {
  std::vector<MachineFacts> ranks;
  std::vector<LinkFacts> links;
  std::vector<GroupFacts> sums;
  std::string directory;  // of runs
  double disk_need = 0;   // bytes of two checkpoints; 0: unknown
};

struct FabricFinding {
  std::string check;           // "product bits", "link", ...
  std::vector<int64_t> ranks;  // that it is about
  std::vector<std::string> hosts;
  bool condemns = false;  // the hosts are not fit; otherwise a warning
  std::string problem, remedy;
  void visit(auto&& field) {
    field("check", check), field("ranks", ranks), field("hosts", hosts), field("condemns", condemns);
    field("problem", problem), field("remedy", remedy);
  }
};

// As an object of its fields, and back.
template <class Facts>
Json json_of_facts(const Facts& facts) {
  Json out = Json::object();
  Facts copy = facts;
  copy.visit([&](const char* name, auto& value) { out[name] = Json(value); });
  return out;
}
template <class Facts>
Facts facts_of_json(const Json& json) {
  Facts facts;
  facts.visit(
      [&](const char* name, auto& value) { value = json.at(name).template get<std::remove_reference_t<decltype(value)>>(); });
  return facts;
}

}  // namespace trireme
