#include "train/cli/loaded_model.h"

#include <utility>

#include "base/json.h"
#include "checkpoint/reader.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/int8_weights.h"
#include "model/int8_weight.h"
#include "parallel/comm.h"
#include "parallel/host_collectives.h"
#include "parallel/tensor_slice.h"
#include "parallel/world.h"
#include "train/hub/init_from.h"
#include "train/hub/published_config.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr int64_t kMostMasters = 64 << 20;  // f32 values read at a time; a larger tensor is read alone

ArenaSizes decoder_sizes(const ModelConfig& model, const DecoderDtypes& dtypes, const DecoderRoom& room) {
  Device device(Place::none);
  Arenas arenas(device, {});
  Decoder decoder(model, dtypes, arenas, device.compute(), room);
  decoder.measure(device.compute());
  return arenas.peaks();
}

RunConfig on_cpu(RunConfig config) {
  config.use_device(DeviceChoice::cpu);  // wherever it was trained
  return config;
}

std::unique_ptr<Tokenizer> tokenizer_of(const WeightSource& source) {
  const RunConfig& config = source.config;
  const std::string& path = config.data.tokenizer;
  if (path.empty())
    throw ConfigError(source.directory() + ": comes without a tokenizer (data.tokenizer); add --set data.tokenizer=PATH");
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(path);
  if (tokenizer->vocab_size() > config.model.vocab)
    throw DataError(text(path, ": has ", tokenizer->vocab_size(), " entries, the model ", config.model.vocab,
                         "; name the tokenizer it was trained with by --set data.tokenizer=PATH"));
  return tokenizer;
}

int32_t begin_of(const WeightSource& source, const Tokenizer& tokenizer) {
  if (!source.checkpoint.empty()) return tokenizer.end_of_document();
  const Json begin = Json::parse(read_special_tokens(source.config.train.init_from + "/config.json").begin);
  if (!begin.is_integer()) return tokenizer.end_of_document();
  const auto token = begin.get<int64_t>();
  return token >= 0 && token < tokenizer.vocab_size() ? static_cast<int32_t>(token) : tokenizer.end_of_document();
}

// Reads f32 masters in groups, and rounds them to the weights' dtype.
class WeightLoader {
 public:
  WeightLoader(const WeightSource& source, Stream& stream) : source_(source), stream_(stream) {
    if (!source.checkpoint.empty()) checkpoint_ = std::make_unique<CheckpointReader>(source.checkpoint);
  }

  void load(const Decoder& decoder) {
    for (const Parameter& parameter : decoder.parameters()) {
      const bool int8 = parameter.weight.dtype() == Dtype::i8;
      const auto pieces = pieces_of(parameter.spec, parameter.weight);
      const auto scales = int8 ? pieces_of(parameter.spec, scales_of(parameter.weight)) : decltype(pieces){};
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto& [name, weight] = pieces[i];
        if (values_ > 0 && values_ + weight.size() > kMostMasters) load_group();
        values_ += weight.size();
        pieces_.push_back({.name = name, .weight = weight, .scales = int8 ? scales[i].second : Tensor{}});
      }
    }
    load_group();
  }

 private:
  struct Piece {
    std::string name;
    Tensor weight;
    Tensor scales{};  // of an 8-bit weight
  };

  void load_group() {
    std::vector<float> masters(static_cast<size_t>(values_));  // zero where the published vocabulary is smaller
    std::vector<TensorSlice> slices;
    float* next = masters.data();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Tensor& piece = pieces_[i].weight;
      std::vector<int64_t> shape{piece.dim(0)};
      if (piece.dims() == 2) shape.push_back(piece.dim(1));
      const Tensor f32 = piece.dims() == 1 ? Tensor(next, Dtype::f32, Place::cpu, {shape[0]})
                                           : Tensor(next, Dtype::f32, Place::cpu, {shape[0], shape[1]});
      slices.push_back(
          {.name = pieces_[i].name, .global_shape = shape, .offset = std::vector<int64_t>(shape.size(), 0), .local = f32});
      next += piece.size();
    }
    if (checkpoint_)
      for (const TensorSlice& slice : slices) checkpoint_->read(slice.name, slice.local);
    else
      init_from(source_.config, slices, kAlone);
    for (size_t i = 0; i < pieces_.size(); ++i)
      if (pieces_[i].scales)
        run(stream_, RoundToInt8{.y = pieces_[i].weight, .scales = pieces_[i].scales, .x = slices[i].local});
      else
        run(stream_, Cast{.y = pieces_[i].weight, .x = slices[i].local});
    pieces_.clear(), values_ = 0;
  }

  const WeightSource& source_;
  Stream& stream_;
  std::unique_ptr<CheckpointReader> checkpoint_;
  std::vector<Piece> pieces_;
  int64_t values_ = 0;
};

}  // namespace

ModelTokenizer::ModelTokenizer(const WeightSource& source)
    : tokenizer_(tokenizer_of(source)), begin_token_(begin_of(source, *tokenizer_)) {}

std::vector<int32_t> ModelTokenizer::document(std::string_view text) const {
  std::vector<int32_t> tokens{begin_token_};
  tokenizer_->encode(text, tokens);
  return tokens;
}

LoadedModel::LoadedModel(const WeightSource& source, bool int8, const DecoderRoom& room)
    : config_(on_cpu(source.config)),
      device_(open_device(config_.kernels, 1)),
      dtypes_{.step = dtype_of(config_.kernels.dtype), .residual = config_.kernels.residual_dtype(), .int8 = int8},
      arenas_(device_, decoder_sizes(config_.model, dtypes_, room)),
      decoder_(config_.model, dtypes_, arenas_, device_.compute(), room) {
  WeightLoader(source, device_.compute()).load(decoder_);
}

bool is_only_process(const std::string& command) {
  const World world({.say = complain});
  if (world.size() == 1) return true;
  if (world.rank() == 0)
    complain(
        std::string(text(command, ": runs in one process, but ", world.size(), " were started; start it without mpirun or srun")));
  broadcast(Comm("all", 0, world.rank(), true), "");  // before another rank ends, since launchers then end all
  return false;
}

void SamplingOptions::visit(Options& o) {
  o("--tokens", tokens, "Tokens to generate, at most", at_least(1));
  o("--temperature", temperature, "Temperature; 0 always takes the most likely token", between(0, 100));
  o("--top-k", top_k, "Sample from the K most likely tokens; 0: all", at_least(0));
  o("--top-p", top_p, "Sample from the most likely tokens that together reach this probability", between(0, 1));
  o("--weights", weights, "Precision of the weights; default: kernels.dtype").one_of({"f32", "bf16", "int8"});
  o("--seed", seed, "Seed of the random choices", at_least(0));
}

WeightWords SamplingOptions::words(WeightWords from) const {
  if (!weights.empty() && !int8()) from.set.push_back("kernels.dtype=" + weights);
  return from;
}

Sampling SamplingOptions::sampling(const Tokenizer& tokenizer) const {
  return {.tokens = tokens,
          .temperature = temperature,
          .top_k = top_k,
          .top_p = top_p,
          .seed = static_cast<uint64_t>(seed),
          .vocab = tokenizer.vocab_size()};
}

}  // namespace trireme
