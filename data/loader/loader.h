// Loader: the batches of one replica, read ahead on a few threads, each of which reads whole batches. Further ahead the disk is
// asked for the pages that will be wanted, so that samples in any order come as fast as it can. The whole state is the number of
// the step.
//
// Sample number g = step * batch + row of the run is what the mixture says of it (mixture.h). The rows of a
// step are cut into microbatches, which the replicas take in turn: replica r has numbers r, r + replicas, ... So the samples of a
// step do not depend on the number of replicas, each epoch reads every sample once, and a batch may be larger than the corpus.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "data/loader/mixture.h"
#include "kernels/tensor.h"

namespace trireme {

// Tokens that one optimizer step of one replica reads. Memory of the loader, valid until its next next().
struct Batch {
  Tensor tokens, targets, positions, document_start;  // [rows, T] i32 on Place::cpu; targets < 0 are ignored
  int64_t valid;                                      // targets >= 0: of the loader's rows; for a step, of all replicas'
  double waited = 0;                                  // seconds until it was read
};

struct LoaderOptions {
  int64_t context, batch;
  int64_t microbatch = 0;  // rows; 0: as many as a replica has
  int replica = 0, replicas = 1;
  uint64_t seed;
  bool document_mask, restart_positions;
  int readers = 2;  // threads; one batch more waits in memory
};

// The replica of a row of a step's batch, and the row's number there.
struct RowPlace {
  int replica;
  int64_t row;
};
RowPlace place_of(const LoaderOptions& options, int64_t row);

class Loader {
 public:
  // The mixture's corpora outlive the loader. batch is a multiple of replicas, context the corpora's.
  Loader(Mixture mixture, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batch of step(), which then counts on. What went wrong on the reading thread is thrown here, for the step it belongs to.
  Batch next();
  void seek(int64_t step);
  int64_t step() const { return step_; }             // of the batch that next() gives
  bool padded() const { return mixture_.padded(); }  // replicas may have different numbers of targets

 private:
  struct Rows {
    enum State : uint8_t { free, filling, ready, held };
    State state = free;
    int64_t step = -1;            // -1: nobody wants it any more
    std::vector<int32_t> values;  // tokens, targets, positions, document_start: [4, rows, T]
    int64_t valid = 0;
    std::exception_ptr error;
  };
  int64_t rows() const { return options_.batch / options_.replicas; }  // of a batch
  Rows* find(Rows::State state, int64_t step = -1);
  void read_batches();
  void fill(Rows& rows, int64_t step) const;
  void advise(int64_t step) const noexcept;
  void close();

  const Mixture mixture_;
  const LoaderOptions options_;
  int64_t ahead_;     // steps whose pages are asked of the disk beforehand
  int64_t step_ = 0;  // of the calling thread

  std::mutex mutex_;
  std::condition_variable read_, freed_;
  std::vector<Rows> rows_;  // one of them the caller's, one for each reader, and one so that none of these has to wait for him
  int64_t unread_ = 0;      // the first step that no reader has taken
  int64_t unadvised_ = 0;   // the first step whose pages were not asked for
  bool closing_ = false;
  std::vector<std::jthread> readers_;  // last: they start when all else stands
};

}  // namespace trireme
