#include "data/build/encode_pipeline.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "kernels/device.h"

namespace trireme {

namespace {

constexpr int64_t kRun = 64 << 10;       // bytes of text that one thread encodes in a go
constexpr size_t kReadAhead = 2;         // batches that wait to be encoded
constexpr size_t kBatchesForEachOf = 8;  // that are held, and one more for each thread

// The file of a passage and its place in it, for messages.
std::string place_in_file(const Passage& passage) {
  const DocumentSource& source = passage.source;
  if (source.line > 0) return text(source.file, ":", source.line);
  return source.offset > 0 ? std::string(text(source.file, ": from byte ", source.offset)) : source.file;
}

class Pipeline {
 public:
  Pipeline(Documents& documents, const Tokenizer& tokenizer, const std::function<void(const EncodedBatch&)>& take,
           int64_t batch_bytes, size_t threads)
      : documents_(documents), tokenizer_(tokenizer), take_(take), batch_bytes_(batch_bytes), most_(kBatchesForEachOf + threads) {}

  void work() {
    std::unique_lock lock(mutex_);
    while (!failure_ && !(all_read_ && batches_.empty())) {
      try {
        if (!do_next(lock)) changed_.wait(lock);
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!failure_) failure_ = std::current_exception();
        changed_.notify_all();
      }
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Batch {
    EncodedBatch whole;
    size_t begun = 0, done = 0;  // of its passages
  };

  // Does what is due, with the lock except for the work itself; false: nothing is.
  bool do_next(std::unique_lock<std::mutex>& lock) {
    if (!taking_ && !batches_.empty() && batches_.front()->done == batches_.front()->whole.passages.size()) {
      take(lock);
    } else if (const auto open = first_open();
               !reading_ && !all_read_ && batches_.size() < most_ && static_cast<size_t>(batches_.end() - open) < kReadAhead) {
      read(lock);
    } else if (open != batches_.end()) {
      encode(lock, **open);
    } else {
      return false;
    }
    changed_.notify_all();
    return true;
  }

  std::deque<std::unique_ptr<Batch>>::iterator first_open() {
    auto batch = batches_.begin();
    while (batch != batches_.end() && (*batch)->begun == (*batch)->whole.passages.size()) ++batch;
    return batch;
  }

  void take(std::unique_lock<std::mutex>& lock) {
    taking_ = true;
    const std::unique_ptr<Batch> batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    take_(batch->whole);
    lock.lock();
    taking_ = false;
  }

  void read(std::unique_lock<std::mutex>& lock) {
    reading_ = true;
    lock.unlock();
    auto batch = std::make_unique<Batch>();
    EncodedBatch& whole = batch->whole;
    whole.passages = documents_.read(batch_bytes_);
    whole.tokens.resize(whole.passages.size());
    whole.trained.resize(whole.passages.size());
    whole.end = documents_.position();
    whole.bytes_read = documents_.bytes_read();
    lock.lock();
    reading_ = false;
    if (whole.passages.empty())
      all_read_ = true;
    else
      batches_.push_back(std::move(batch));
  }

  void encode(std::unique_lock<std::mutex>& lock, Batch& batch) {
    std::vector<Passage>& passages = batch.whole.passages;
    const size_t begin = batch.begun;
    for (int64_t bytes = 0; batch.begun < passages.size() && bytes < kRun; ++batch.begun)
      bytes += static_cast<int64_t>(passages[batch.begun].text.size());
    const size_t end = batch.begun;
    lock.unlock();
    for (size_t i = begin; i < end; ++i) {
      documents_.parse(passages[i]);
      if (!passages[i].problem.empty()) continue;
      std::vector<int32_t> tokens;  // its ends move with each token: not in a cache line that other threads write to
      try {
        encode(passages[i], tokens, batch.whole.trained[i]);
      } catch (const DataError& refusal) {  // the tokenizer's
        passages[i].problem = place_in_file(passages[i]) + ": " + refusal.what();
      }
      batch.whole.tokens[i] = std::move(tokens);
    }
    lock.lock();
    batch.done += end - begin;
  }

  void encode(const Passage& passage, std::vector<int32_t>& tokens, std::vector<uint8_t>& trained) const {
    if (passage.parts.empty())
      return passage.starts ? tokenizer_.encode(passage.text, tokens) : tokenizer_.encode_rest(passage.text, tokens);
    encode_parts(passage.parts, tokenizer_, tokens, trained);
    trained.push_back(passage.parts.back().trained ? 1 : 0);
  }

  Documents& documents_;
  const Tokenizer& tokenizer_;
  const std::function<void(const EncodedBatch&)>& take_;
  const int64_t batch_bytes_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Batch>> batches_;  // in their order
  bool reading_ = false, taking_ = false, all_read_ = false;
  std::exception_ptr failure_;
};

}  // namespace

void encode_documents(Documents& documents, const Tokenizer& tokenizer, const std::function<void(const EncodedBatch&)>& take,
                      int64_t batch_bytes) {
  const auto threads = static_cast<size_t>(threads_here());
  Pipeline pipeline(documents, tokenizer, take, batch_bytes, threads);
  {
    std::vector<std::jthread> others;
    while (others.size() + 1 < threads) others.emplace_back([&] { pipeline.work(); });
    pipeline.work();
  }
  pipeline.rethrow();
}

}  // namespace trireme
