// Trials of this machine by one rank: what they measure, and a fault of memory that a test makes.
#include "train/run/fabric_check.h"

#include <filesystem>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/run/bus_rates.h"
#include "train/run/machine_trial.h"

namespace trireme {

TEST_CASE("a bit of memory that changes between writing and reading is one word that differs") {
  Device device(Place::cpu, read_cpu_facts());
  MachineFacts facts;
  try_memory(device, 32 << 20, facts);
  CHECK(facts.memory_bytes == 32 << 20);
  CHECK(facts.memory_errors == 0);
  try_memory(device, 32 << 20, facts, [](std::byte* memory) { memory[(20 << 20) + 3] ^= std::byte{4}; });
  CHECK(facts.memory_errors == 2);  // in the pattern, and in its complement
  try_memory(device, 1 << 20, facts);
  CHECK(facts.memory_bytes == 0);  // less than a piece
}

TEST_CASE("products and copies have rates, and equal products equal bits") {
  Device device(Place::cpu, read_cpu_facts());
  MachineFacts first, second;
  try_products(device, 0.05, first), try_products(device, 0.05, second);
  CHECK(first.product_bits == second.product_bits);
  CHECK(first.products_checked >= 3);
  CHECK(first.products_differ == 0);
  CHECK(first.products > 1e8);
  CHECK((first.products_spread >= 0 && first.products_spread < 1));
  try_copies(device, 1 << 20, first);
  CHECK(first.copies > 1e8);
}

TEST_CASE("the space of a directory that does not exist is that of the one above it, and nothing stays there") {
  const Scratch scratch;
  MachineFacts facts;
  try_disk(scratch / "not/yet", 4 << 20, facts);
  CHECK(facts.disk_free > 0);
  CHECK(facts.disk_rate > 0);
  CHECK(facts.disk_problem.empty());
  CHECK(std::filesystem::is_empty(scratch.path()));
  MachineFacts free_alone;
  try_disk(scratch.path(), 0, free_alone);
  CHECK(free_alone.disk_rate == 0);
  CHECK(free_alone.disk_free > 0);
}

TEST_CASE("a program is known by its version and digest, and the MPI that it has loaded by its file") {
  MachineFacts facts;
  note_software(facts);
  CHECK_THAT(facts.program, ContainsSubstring("with digest "));
  CHECK_THAT(facts.libraries, ContainsSubstring("libmpi"));
}

TEST_CASE("the size of a bucket follows from what a rank sends in a step") {
  Tally traffic;
  traffic["reduce_scatter dp"] = {.calls = 4, .bytes = 4 * 3e6};
  traffic["all_reduce tp"] = {.calls = 2, .bytes = 2 * 8e6};
  CHECK(bucket_bytes(traffic, "dp", 4) == 4'000'000);
  CHECK(bucket_bytes(traffic, "tp", 2) == 8'000'000);
  CHECK(bucket_bytes(traffic, "pp", 2) == 0);
  CHECK(bucket_bytes(traffic, "dp", 1) == 0);
}

TEST_CASE("bus bandwidth has the factors of nccl-tests") {
  const auto bus = [](BusOp op, int64_t ranks) { return BusRate{.op = op, .ranks = ranks, .bytes = 8000, .seconds = 1e-3}.bus(); };
  CHECK(bus(BusOp::all_reduce, 8) == Approx(14e6));
  CHECK(bus(BusOp::all_gather, 8) == Approx(7e6));
  CHECK(bus(BusOp::reduce_scatter, 4) == Approx(6e6));
  CHECK(bus(BusOp::send_receive, 8) == Approx(8e6));
}

TEST_CASE("one rank alone is checked without links") {
  World world;
  const Comm all("all", 0, 1);
  Mesh mesh;
  Device device(Place::cpu, read_cpu_facts());
  const FabricReport report =
      check_fabric({.world = world, .all = all, .mesh = mesh, .device = device, .config = nullptr}, {.products = 0.05,
                                                                                                     .for_links = 0.1,
                                                                                                     .for_sums = 0.1,
                                                                                                     .copies = 1 << 20,
                                                                                                     .memory = 16 << 20,
                                                                                                     .disk = 0,
                                                                                                     .links = {1 << 20},
                                                                                                     .sums = {1 << 20}});
  CHECK(report.findings.empty());
  CHECK(report.condemned.empty());
  CHECK(report.facts.ranks.size() == 1);
  CHECK(report.facts.links.empty());
  CHECK_THAT(summary_of(report), ContainsSubstring("1 rank on 1 host: fit, checked in "));
}

}  // namespace trireme
