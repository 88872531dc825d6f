// trireme sample: text from a run or a checkpoint.
#include <memory>

#include "checkpoint/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/ops/fill.h"
#include "train/cli/commands.h"
#include "train/config/config.h"
#include "train/eval/generate.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct SampleOptions {
  static constexpr auto name = "sample";
  static constexpr auto about = "Continues a text";
  std::string from, prompt;
  int64_t tokens = 200, top_k = 0, seed = 1;
  double temperature = 0.8, top_p = 1;

  void visit(Options& o) {
    o("from", from, "A run's directory, or one checkpoint's").required();
    o("--prompt", prompt, "The text to continue").required();
    o("--tokens", tokens, "Tokens to add", at_least(1));
    o("--temperature", temperature, "0: always the likeliest token", between(0, 100));
    o("--top-k", top_k, "Only the k likeliest tokens; 0: all", at_least(0));
    o("--top-p", top_p, "Only the likeliest tokens that together have this probability", between(0, 1));
    o("--seed", seed, "Of the random choice", at_least(0));
  }
};

ArenaSizes decoder_sizes(const ModelConfig& model, Dtype dtype) {
  Device device(Place::none);
  Arenas arenas(device, {});
  Decoder decoder(model, dtype, arenas, device.compute());
  decoder.feed(device.compute(), std::vector<int32_t>(static_cast<size_t>(model.context), 0));
  return arenas.peaks();
}

// Each piece from the checkpoint's f32 master, rounded to the dtype of the step.
void load(const CheckpointReader& checkpoint, const Decoder& decoder, Stream& stream) {
  std::vector<float> master;
  for (const Parameter& parameter : decoder.parameters())
    for (const auto& [name, piece] : pieces_of(parameter.spec, parameter.weight)) {
      master.resize(static_cast<size_t>(piece.size()));
      const Tensor f32 = piece.dims() == 1 ? Tensor(master.data(), Dtype::f32, Place::cpu, {piece.dim(0)})
                                           : Tensor(master.data(), Dtype::f32, Place::cpu, {piece.dim(0), piece.dim(1)});
      checkpoint.read(name, f32);
      run(stream, Cast{.y = piece, .x = f32});
    }
}

ExitCode run_sample(const SampleOptions& options) {
  const CheckpointReader checkpoint(options.from);
  const RunConfig config = parse_config(checkpoint.directory(), checkpoint.manifest().config);
  if (config.data.tokenizer.empty())
    throw ConfigError(text(options.from, ": its config names no data.tokenizer; the run was trained without one"));
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(config.data.tokenizer);
  if (tokenizer->vocab_size() > config.model.vocab)
    throw DataError(text(config.data.tokenizer, ": has ", tokenizer->vocab_size(), " entries, the model ", config.model.vocab));

  KernelsConfig kernels = config.kernels;
  kernels.device = DeviceChoice::cpu;  // wherever it was trained
  Device device = open_device(kernels, 1);
  Stream& compute = device.compute();
  const Dtype dtype = dtype_of(config.kernels.dtype);
  Arenas arenas(device, decoder_sizes(config.model, dtype));
  Decoder decoder(config.model, dtype, arenas, compute);
  load(checkpoint, decoder, compute);

  // A document begins after the end of another.
  std::vector<int32_t> prompt{tokenizer->end_of_document()};
  tokenizer->encode(options.prompt, prompt);
  const Sampling sampling{.tokens = options.tokens,
                          .temperature = options.temperature,
                          .top_k = options.top_k,
                          .top_p = options.top_p,
                          .seed = static_cast<uint64_t>(options.seed),
                          .vocab = tokenizer->vocab_size()};
  TextOfTokens words(*tokenizer);
  for (const int32_t token : prompt) words.next(token);
  say_part(options.prompt);
  generate(decoder, compute, std::move(prompt), sampling, [&](int32_t token) {
    if (token == tokenizer->end_of_document()) return false;
    say_part(words.next(token));
    return true;
  });
  say("");
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> sample_command() { return make_command<SampleOptions>(run_sample); }

}  // namespace trireme
