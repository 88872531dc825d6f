#include "data/loader/loader.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"

namespace trireme {

namespace {

// As much is in flight from the disk as it takes to keep a fast one busy, and the page cache can hold of each replica.
constexpr int64_t kSamplesAhead = 512, kBytesAhead = int64_t{64} << 20;

}  // namespace

Loader::Loader(Mixture mixture, const LoaderOptions& options) : mixture_(std::move(mixture)), options_(options) {
  require(options.context == mixture_.context(),
          text("a loader of context ", options.context, " on a corpus of ", mixture_.context()));
  require(options.replicas >= 1 && 0 <= options.replica && options.replica < options.replicas,
          text("replica ", options.replica, " of ", options.replicas));
  require(options.batch >= 1 && options.batch % options.replicas == 0,
          text("a batch of ", options.batch, " for ", options.replicas, " replicas"));
  require(options.microbatch >= 0 && (options.microbatch == 0 || options.batch / options.replicas % options.microbatch == 0),
          text("microbatches of ", options.microbatch, " of a batch of ", options.batch, " for ", options.replicas, " replicas"));
  require(options.readers >= 1, text(options.readers, " readers"));
  const int64_t samples = std::clamp<int64_t>(kBytesAhead / (4 * options.context), 1, kSamplesAhead);
  ahead_ = (samples + rows() - 1) / rows();
  rows_ = std::vector<Rows>(static_cast<size_t>(options.readers) + 2);
  for (Rows& each : rows_) {
    each.values.resize(static_cast<size_t>(4 * rows() * options.context));
    int32_t* const positions = each.values.data() + 2 * rows() * options.context;
    for (int64_t row = 0; row < rows(); ++row)
      std::iota(positions + row * options.context, positions + (row + 1) * options.context, 0);
  }
  try {
    for (int i = 0; i < options.readers; ++i) readers_.emplace_back([this] { read_batches(); });
  } catch (...) {
    close();
    throw;
  }
}

Loader::~Loader() { close(); }

void Loader::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  freed_.notify_all();
}

RowPlace place_of(const LoaderOptions& options, int64_t row) {
  const int64_t rows_at_once = options.microbatch > 0 ? options.microbatch : options.batch / options.replicas;
  const int64_t microbatch = row / rows_at_once;
  return {static_cast<int>(microbatch % options.replicas), microbatch / options.replicas * rows_at_once + row % rows_at_once};
}

Loader::Rows* Loader::find(Rows::State state, int64_t step) {
  const auto found =
      std::ranges::find_if(rows_, [&](const Rows& rows) { return rows.state == state && (step < 0 || rows.step == step); });
  return found == rows_.end() ? nullptr : &*found;
}

// Reports nothing that is wrong with a shard: fill() does.
void Loader::advise(int64_t step) const noexcept try {
  for (int64_t row = 0; row < options_.batch; ++row) {
    if (place_of(options_, row).replica != options_.replica) continue;
    const Mixture::Sample at_row = mixture_.at(step * options_.batch + row, options_.seed);
    mixture_.source(at_row.source).advise(at_row.sample);
  }
} catch (const std::exception&) {
}

void Loader::fill(Rows& rows, int64_t step) const {
  const int64_t T = options_.context, plane = this->rows() * T;
  const bool padded = mixture_.padded();
  rows.valid = padded ? 0 : plane;
  for (int64_t row = 0; row < options_.batch; ++row) {
    const RowPlace place = place_of(options_, row);
    if (place.replica != options_.replica) continue;
    const Mixture::Sample at_row = mixture_.at(step * options_.batch + row, options_.seed);
    const Corpus& corpus = mixture_.source(at_row.source);
    if (padded) rows.valid += corpus.targets(at_row.sample);
    int32_t* const at = rows.values.data() + place.row * T;
    // Values that are the same for all rows stand there already.
    corpus.read(at_row.sample, options_.document_mask, options_.restart_positions,
                {.tokens = at,
                 .targets = at + plane,
                 .positions = options_.restart_positions ? at + 2 * plane : nullptr,
                 .document_start = options_.document_mask ? at + 3 * plane : nullptr});
  }
}

void Loader::read_batches() {
  std::unique_lock lock(mutex_);
  while (true) {
    freed_.wait(lock, [this] { return closing_ || find(Rows::free) != nullptr; });
    if (closing_) return;
    Rows& rows = *find(Rows::free);
    const int64_t step = unread_++;
    rows.state = Rows::filling;
    rows.step = step;
    rows.error = nullptr;
    const bool advised = step < unadvised_;
    unadvised_ = std::max(unadvised_, step + 1);
    lock.unlock();
    try {
      if (!advised) advise(step);
      fill(rows, step);
    } catch (...) {
      rows.error = std::current_exception();
    }
    lock.lock();
    rows.state = rows.step == step ? Rows::ready : Rows::free;  // seek() may have come in between
    if (rows.state == Rows::ready && step == step_) read_.notify_one();
    while (!closing_ && unadvised_ < unread_ + ahead_) {
      const int64_t next = unadvised_++;
      lock.unlock();
      advise(next);
      lock.lock();
    }
  }
}

Batch Loader::next() {
  std::unique_lock lock(mutex_);
  Rows* rows = find(Rows::ready, step_);
  double waited = 0;
  if (rows == nullptr) {
    const auto asked = Clock::now();
    read_.wait(lock, [&] { return (rows = find(Rows::ready, step_)) != nullptr; });
    waited = seconds_since(asked);
  }
  if (rows->error) std::rethrow_exception(rows->error);
  if (Rows* const before = find(Rows::held)) before->state = Rows::free;
  rows->state = Rows::held;
  ++step_;
  lock.unlock();
  freed_.notify_one();

  const int64_t count = this->rows(), T = options_.context;
  const auto plane = [&](int64_t i) { return Tensor(rows->values.data() + i * count * T, Dtype::i32, Place::cpu, {count, T}); };
  return {plane(0), plane(1), plane(2), plane(3), rows->valid, waited};
}

void Loader::seek(int64_t step) {
  require(step >= 0, text("step ", step));
  {
    const std::lock_guard lock(mutex_);
    if (step == step_) return;
    step_ = unread_ = unadvised_ = step;
    for (Rows& rows : rows_) {
      if (rows.state == Rows::ready) rows.state = Rows::free;
      if (rows.state == Rows::filling) rows.step = -1;
    }
  }
  freed_.notify_all();
}

}  // namespace trireme
