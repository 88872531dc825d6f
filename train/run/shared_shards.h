// Corpora that all ranks read. One of many shards is opened by rank 0, and the others get its headers: ten thousand files that each
// of many ranks opens at the start would keep a shared file system busy for long.
#pragma once

#include <functional>
#include <vector>

#include "data/loader/corpus.h"
#include "parallel/comm.h"

namespace trireme {

// Called on every rank. `open` lists and opens the shards. `from_known` takes them as rank 0 found them. What rank 0 throws, all
// throw.
Corpus open_shared(const Comm& all, const std::function<Corpus()>& open,
                   const std::function<Corpus(const std::vector<KnownShard>&)>& from_known);

}  // namespace trireme
