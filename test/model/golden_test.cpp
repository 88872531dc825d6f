// Parity with PyTorch: logits, loss and every gradient of tiny models, from scripts/make_golden.py.
#include "test/reference/golden.h"

#include <memory>

#include "kernels/ops/fill.h"
#include "kernels/ops/int8_weights.h"
#include "model/decoder.h"
#include "model/int8_weight.h"
#include "model/stage.h"
#include "test/catch.h"

namespace trireme {
namespace {

std::vector<float> to_floats(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = t.dtype() == Dtype::f32 ? t.as<float>()[i] : static_cast<float>(t.as<Bf16>()[i]);
  return out;
}

void set(const Tensor& t, const std::vector<float>& values) {
  REQUIRE(static_cast<size_t>(t.size()) == values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (t.dtype() == Dtype::f32)
      t.as<float>()[i] = values[i];
    else
      t.as<Bf16>()[i] = Bf16(values[i]);
}

Tensor ids(const GoldenTensor& t) {
  return Tensor(const_cast<int32_t*>(t.ids.data()), Dtype::i32, Place::cpu, {static_cast<int64_t>(t.ids.size())});
}

// A tiny model with the golden's weights and batch.
struct Tiny {
  Golden golden;
  Device device{Place::cpu, read_cpu_facts()};
  int64_t rows, context;
  std::unique_ptr<Arenas> arenas;
  std::unique_ptr<Stage> stage;
  std::vector<int32_t> positions;
  Microbatch batch;

  Tiny(const std::string& name, Dtype dtype, Dtype logits = Dtype::f32) : golden(read_golden(TRIREME_SOURCE, name)) {
    rows = golden["tokens"].shape[0], context = golden["tokens"].shape[1];
    const int64_t room = 8 << 20;
    arenas = std::make_unique<Arenas>(device, ArenaSizes{room, room, room, room, room});
    stage = std::make_unique<Stage>(golden.model, StageShape{.rows = rows, .context = context, .dtype = dtype, .logits = logits},
                                    *arenas, device.compute());
    for (const Parameter& p : stage->parameters())
      for (const auto& [piece, tensor] : pieces_of(p.spec, p.weight)) set(tensor, golden["weight/" + piece].values);
    for (int64_t i = 0; i < rows * context; ++i) positions.push_back(static_cast<int32_t>(i % context));
    batch = {.rows = rows,
             .context = context,
             .tokens = ids(golden["tokens"]),
             .positions = Tensor(positions.data(), Dtype::i32, Place::cpu, {rows * context}),
             .targets = ids(golden["targets"]),
             .document_start = ids(golden["starts"])};
  }

  int64_t valid() const {
    return std::count_if(golden["targets"].ids.begin(), golden["targets"].ids.end(), [](int32_t id) { return id >= 0; });
  }
};

struct Bounds {
  double logits, loss, gradient;
};

void check_against_golden(const std::string& name, Dtype dtype, Dtype of_logits, const Bounds& bounds) {
  Tiny tiny(name, dtype, of_logits);
  Stream& compute = tiny.device.compute();
  const int64_t n = tiny.rows * tiny.context;
  std::vector<float> logits(static_cast<size_t>(n * tiny.golden.model.vocab));
  tiny.stage->forward(compute, tiny.batch);
  tiny.stage->logits(compute, tiny.batch, Tensor(logits.data(), Dtype::f32, Place::cpu, {n, tiny.golden.model.vocab}));
  CHECK(relative_error(logits, tiny.golden["logits"].values) < bounds.logits);

  float loss = 0;
  const LossSum sum{.total = Tensor(&loss, Dtype::f32, Place::cpu, {1}), .scale = 1.0f / static_cast<float>(tiny.valid())};
  tiny.stage->evaluate(compute, tiny.batch, sum);
  CHECK(relative_error({loss}, tiny.golden["loss"].values) < bounds.loss);
  loss = 0;
  tiny.stage->backward(compute, tiny.batch, {.loss = sum});
  CHECK(relative_error({loss}, tiny.golden["loss"].values) < bounds.loss);

  size_t checked = 0;
  for (const Parameter& p : tiny.stage->parameters())
    for (const auto& [piece, gradient] : pieces_of(p.spec, p.gradient)) {
      INFO("gradient of " << piece);
      const std::vector<float>& truth = tiny.golden["gradient/" + piece].values;
      // A key's bias adds the same to all scores of a query. Its gradient is 0 up to rounding, so
      // it is compared with the query bias's.
      const bool zero = piece.ends_with("k_bias") && tiny.golden.model.family == Family::gpt2;
      if (zero) {
        for (const float g : to_floats(gradient)) CHECK(std::abs(g) < bounds.gradient);
      } else {
        CHECK(relative_error(to_floats(gradient), truth) < bounds.gradient);
      }
      ++checked;
    }
  size_t expected = 0;
  for (const auto& [key, tensor] : tiny.golden.tensors) expected += key.starts_with("gradient/");
  CHECK(checked == expected);
}

const char* const kModels[] = {"gpt2", "llama", "qwen3", "mistral"};

}  // namespace

TEST_CASE("logits, loss and every gradient agree with PyTorch in f32") {
  for (const char* name : kModels) {
    SECTION(name) { check_against_golden(name, Dtype::f32, Dtype::f32, {.logits = 1e-5, .loss = 1e-6, .gradient = 1e-5}); }
  }
}

TEST_CASE("logits, loss and every gradient agree with PyTorch within the rounding of bf16, also of the loss's logits") {
  const Dtype logits = GENERATE(Dtype::f32, Dtype::bf16);
  for (const char* name : kModels) {
    SECTION(name) { check_against_golden(name, Dtype::bf16, logits, {.logits = 3e-2, .loss = 5e-3, .gradient = 8e-2}); }
  }
}

TEST_CASE("gradients of two backward passes add up") {
  Tiny tiny("llama", Dtype::f32);
  float loss = 0;
  const LossSum sum{.total = Tensor(&loss, Dtype::f32, Place::cpu, {1}), .scale = 0.5f / static_cast<float>(tiny.valid())};
  for (int i = 0; i < 2; ++i) {
    tiny.stage->forward(tiny.device.compute(), tiny.batch);
    tiny.stage->backward(tiny.device.compute(), tiny.batch, {.loss = sum});
  }
  for (const Parameter& p : tiny.stage->parameters())
    for (const auto& [piece, gradient] : pieces_of(p.spec, p.gradient))
      CHECK(relative_error(to_floats(gradient), tiny.golden["gradient/" + piece].values) < 1e-5);
}

namespace {

// Fills a decoder's weights; 8-bit ones rounded.
void fill(const Decoder& decoder, Tiny& tiny) {
  for (const Parameter& p : decoder.parameters()) {
    std::vector<float> values;
    for (const auto& [piece, tensor] : pieces_of(p.spec, p.weight)) {
      const std::vector<float>& part = tiny.golden["weight/" + piece].values;
      values.insert(values.end(), part.begin(), part.end());
    }
    values.resize(static_cast<size_t>(p.weight.size()));  // zeros after the vocabulary
    if (p.weight.dtype() != Dtype::i8) {
      set(p.weight, values);
      continue;
    }
    const Tensor wide(values.data(), Dtype::f32, Place::cpu, {p.weight.dim(0), p.weight.dim(1)});
    run(tiny.device.compute(), RoundToInt8{.y = p.weight, .scales = scales_of(p.weight), .x = wide});
  }
}

// Gives `to` the numbers that the weights of `from` stand for. A tied table keeps its own.
void copy_rounded(const Decoder& to, const Decoder& from) {
  for (size_t i = 0; i < to.parameters().size(); ++i) {
    const Tensor rounded = from.parameters()[i].weight;
    if (rounded.dtype() != Dtype::i8) continue;
    std::vector<float> values(static_cast<size_t>(rounded.size()));
    const int8_t* y = rounded.as<int8_t>();
    const float* scales = scales_of(rounded).as<float>();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = scales[static_cast<int64_t>(k) / rounded.dim(1)] * static_cast<float>(y[k]);
    set(to.parameters()[i].weight, values);
  }
}

}  // namespace

TEST_CASE("the decoder, token by token and in chunks, gives the logits of the whole pass") {
  for (const char* name : {"gpt2", "qwen3", "mistral"}) {
    SECTION(name) {
      Tiny tiny(name, Dtype::f32);
      const int64_t room = 8 << 20;
      Arenas arenas(tiny.device, {room, 0, 0, room, room});
      Decoder decoder(tiny.golden.model, {Dtype::f32}, arenas, tiny.device.compute());
      fill(decoder, tiny);
      const int64_t vocab = tiny.golden.model.vocab;
      const std::vector<int32_t>& tokens = tiny.golden["tokens"].ids;
      const std::vector<float>& truth = tiny.golden["logits"].values;
      const auto row = [&](int64_t t) { return std::vector<float>(truth.begin() + t * vocab, truth.begin() + (t + 1) * vocab); };
      decoder.feed(tiny.device.compute(), {tokens.data(), 5});
      CHECK(relative_error(to_floats(decoder.logits()), row(4)) < 1e-5);
      for (int64_t t = 5; t < tiny.context; ++t) {
        decoder.feed(tiny.device.compute(), {tokens.data() + t, 1});
        CHECK(relative_error(to_floats(decoder.logits()), row(t)) < 1e-5);
      }
      decoder.clear();
      decoder.feed(tiny.device.compute(), {tokens.data(), static_cast<size_t>(tiny.context)});
      CHECK(relative_error(to_floats(decoder.logits()), row(tiny.context - 1)) < 1e-5);
      const std::vector<int32_t> more(static_cast<size_t>(decoder.capacity()), 1);
      CHECK_THROWS_AS(decoder.feed(tiny.device.compute(), more), Error);
    }
  }
}

TEST_CASE("a decoder with 8-bit weights gives the logits of the numbers that they stand for") {
  for (const char* name : {"gpt2", "llama", "qwen3"}) {
    SECTION(name) {
      Tiny tiny(name, Dtype::f32);
      Stream& compute = tiny.device.compute();
      const int64_t room = 8 << 20;
      Arenas exact_arenas(tiny.device, {room, 0, 0, room, room}), arenas(tiny.device, {room, 0, 0, room, room}),
          wide_arenas(tiny.device, {room, 0, 0, room, room});
      Decoder exact(tiny.golden.model, {Dtype::f32}, exact_arenas, compute);
      Decoder int8(tiny.golden.model, {.step = Dtype::f32, .int8 = true}, arenas, compute);
      Decoder wide(tiny.golden.model, {Dtype::f32}, wide_arenas, compute);
      for (Decoder* decoder : {&exact, &int8, &wide}) fill(*decoder, tiny);
      copy_rounded(wide, int8);
      const std::vector<int32_t>& tokens = tiny.golden["tokens"].ids;
      for (const int64_t first : {int64_t{1}, int64_t{5}, tiny.context}) {
        for (Decoder* decoder : {&exact, &int8, &wide}) {
          decoder->clear();
          decoder->feed(compute, {tokens.data(), static_cast<size_t>(first)});
          for (int64_t t = first; t < tiny.context; ++t) decoder->feed(compute, {tokens.data() + t, 1});
        }
        const std::vector<float> got = to_floats(int8.logits());
        CHECK(relative_error(got, to_floats(exact.logits())) < 0.03);
        CHECK(relative_error(got, to_floats(exact.logits())) > 1e-4);
        if (!tiny.golden.model.tied) CHECK(relative_error(got, to_floats(wide.logits())) < 1e-5);
      }
    }
  }
}

TEST_CASE("sequences that are decoded together get the bits that each gets alone") {
  for (const char* name : {"gpt2", "qwen3", "mistral"})
    for (const DecoderDtypes& dtypes :
         {DecoderDtypes{Dtype::f32}, DecoderDtypes{Dtype::bf16}, DecoderDtypes{.step = Dtype::bf16, .int8 = true}}) {
      CAPTURE(name, dtypes.step, dtypes.int8);
      Tiny tiny(name, Dtype::f32);
      Stream& compute = tiny.device.compute();
      const std::vector<int32_t>& tokens = tiny.golden["tokens"].ids;
      constexpr int64_t kSequences = 19, kPrompts = 10, kRoom = 16;  // more sequences than one pass takes
      const int64_t room = 32 << 20;
      Arenas arenas(tiny.device, {room, 0, 0, room, room}), alone_arenas(tiny.device, {room, 0, 0, room, room});
      Decoder together(tiny.golden.model, dtypes, arenas, compute, {.sequences = kSequences, .tokens = kRoom});
      Decoder alone(tiny.golden.model, dtypes, alone_arenas, compute);
      for (Decoder* decoder : {&together, &alone}) fill(*decoder, tiny);
      const auto prompt_of = [&](int64_t i) {
        i %= kPrompts;
        return std::span(tokens).subspan(static_cast<size_t>(i % 3), static_cast<size_t>(1 + i * 5 % 7));
      };
      for (int64_t i = 0; i < kSequences; ++i)
        i < kPrompts ? together.feed(compute, prompt_of(i), i) : together.copy(compute, i - kPrompts, i);
      for (int64_t step = 0; step < 6; ++step) {
        // All but one, and they change places.
        std::vector<Decoder::Next> next;
        for (int64_t k = 0; k < kSequences; ++k)
          if (const int64_t i = (k + 7 * step) % kSequences; i != 3 * step)
            next.push_back({.sequence = i, .token = tokens[static_cast<size_t>(i + step)]});
        together.step(compute, next);
        if (step < 5) continue;
        for (size_t row = 0; row < next.size(); ++row) {
          const int64_t i = next[row].sequence;
          CAPTURE(i);
          alone.clear();
          alone.feed(compute, prompt_of(i));
          for (int64_t s = 0; s <= step; ++s)
            if (i != 3 * s) alone.feed(compute, {tokens.data() + i + s, 1});
          CHECK(together.length(i) == alone.length());
          CHECK((to_floats(together.logits(static_cast<int64_t>(row))) == to_floats(alone.logits())));
        }
      }
      const Decoder::Next one{.sequence = 4, .token = 1};
      while (together.length(4) < kRoom) together.step(compute, {&one, 1});
      CHECK_THROWS_AS(together.step(compute, {&one, 1}), Error);
    }
}

}  // namespace trireme
