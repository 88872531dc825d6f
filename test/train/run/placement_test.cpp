// The places of ranks: tp groups on one node each.
#include "train/run/placement.h"

#include "test/catch.h"

namespace trireme {

TEST_CASE("a tp group on several nodes is named, with the ways to start it on one") {
  const std::vector<std::vector<int64_t>> block{{0, 1, 2, 3}, {4, 5, 6, 7}}, cyclic{{0, 2, 4, 6}, {1, 3, 5, 7}};
  for (const int64_t tp : {1, 2, 4}) CHECK(split_tp_group(block, tp).empty());
  CHECK(split_tp_group(cyclic, 1).empty());
  CHECK_THAT(split_tp_group(block, 8), ContainsSubstring("parallel.tp = 8: ranks 0 to 7 form a group that must be on one node, but "
                                                         "rank 0 is on node 0 and rank 4 is not"));
  const std::string words = split_tp_group(cyclic, 2);
  CHECK_THAT(words, ContainsSubstring("ranks 0 to 1 form a group"));
  CHECK_THAT(words, ContainsSubstring("mpirun --map-by slot or srun --distribution=block:block"));
  CHECK_FALSE(split_tp_group({{0, 1, 2}, {3, 4, 5}}, 2).empty());
}

}  // namespace trireme
