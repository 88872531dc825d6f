// The program with the emulated GPU, from the outside.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "base/json.h"
#include "test/catch.h"
#include "test/emulation/nccl_order.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

const std::string kProgram = TRIREME_BUILD "/test/trireme_emulated";

// The settings of a run of `name` on the GPU.
std::vector<std::string> on_gpu(const std::string& name, std::vector<std::string> settings) {
  settings.insert(settings.end(), {"kernels.device=cuda", "train.name=" + name});
  return Workplace::arguments(settings);
}

bool emulated() {
  if (std::filesystem::exists(kProgram)) return true;
  WARN("skipped: CUDA threads are emulated on x86-64 alone");
  return false;
}

}  // namespace

TEST_CASE("by default a run takes a GPU that runs our kernels, else the CPU, and an evaluation takes what there is",
          "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const std::vector<std::string> settings{"train.steps=2", "train.eval_every=0", "train.name=here"};
  const auto start = [&](const std::string& program, std::vector<std::string> words) {
    return Process(place.scratch.path(), words, 1, program).wait();
  };
  CHECK(start(kProgram, Workplace::arguments(settings)).code == 0);
  CHECK_THAT(place.run("here", "config.yaml"), ContainsSubstring("  device: cuda\n"));
  for (const std::string& program : {std::string(TRIREME_BUILD) + "/trireme", kProgram}) {  // on a machine without one, and with
    const Ended evaluated = start(program, {"eval", "here", "--text", "held.txt"});
    INFO(evaluated.err);
    CHECK(evaluated.code == 0);
  }
  std::filesystem::remove_all(place.scratch / "runs/here");
  succeed(place.train(settings));
  CHECK_THAT(place.run("here", "config.yaml"), ContainsSubstring("  device: cpu\n"));
  const Ended refused = place.train({"train.offload=optimizer"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("train.offload = optimizer: is for GPUs, and kernels.device = auto finds none: "));
}

TEST_CASE("a run that does not fit into what is free of a GPU is refused before it takes any, with what fits", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  setenv("TRIREME_EMULATED_MIB", "300", 1);
  const auto start = [&](const std::string& rows) {
    return Process(place.scratch.path(), on_gpu("small", {"train.steps=1", "train.batch=512", "train.microbatch=" + rows}), 1,
                   kProgram)
        .wait();
  };
  const Ended refused = start("512"), fits = start("4");
  unsetenv("TRIREME_EMULATED_MIB");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             ContainsSubstring(" of emulated GPU, which has 300 MiB free of 300 MiB; it fits with --set train.microbatch="));
  INFO(refused.err << fits.err);
  CHECK(fits.code == 0);
}

TEST_CASE("attention by fused kernels on the emulated GPU has the losses of ours", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const auto train = [&](const std::string& kernels, std::vector<std::string> settings) {
    const std::string name = kernels + "-" + std::to_string(settings.size());
    settings.insert(settings.end(), {"kernels.attention=" + kernels, "kernels.dtype=bf16"});
    const Ended ended = Process(place.scratch.path(), on_gpu(name, settings), 1, kProgram).wait();
    INFO(ended.out << ended.err);
    REQUIRE(ended.code == 0);
    const bool chosen = ended.out.find(": cudnn, chosen by kernels.attention") != std::string::npos;
    CHECK(chosen == (kernels == "cudnn" && settings.size() < 5));
    return place.metrics(name);
  };
  for (const auto& masks : {std::vector<std::string>{"model.document_mask=false"}, std::vector<std::string>{}}) {
    const auto fused = train("cudnn", masks), ours = train("ours", masks);
    REQUIRE(fused.size() == ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      const char* key = ours[i].contains("loss") ? "loss" : "val_loss";
      CHECK(fused[i].at(key).get<double>() == Approx(ours[i].at(key).get<double>()).epsilon(0.02));
    }
  }
  // Invariant numerics take ours.
  const std::vector<std::string> exact{"parallel.numerics=invariant", "train.microbatch=1", "train.steps=2", "train.warmup=1"};
  CHECK(train("cudnn", exact) == train("ours", exact));
}

TEST_CASE("a run on the emulated GPU that is killed continues to the same bits", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  for (const std::string rounding : {"nearest", "stochastic"}) {
    const std::vector<std::string> often{"checkpoint.every=2", "kernels.dtype=bf16", "train.rounding=" + rounding, "train.steps=12",
                                         "train.warmup=2"};
    const auto kill_and_go_on = [&](const std::string& name, std::vector<std::string> settings) {
      settings.insert(settings.end(), often.begin(), often.end());
      Process killed(place.scratch.path(), on_gpu(name, settings), 1, kProgram);
      while (killed.running() && place.lines(name) < 7) usleep(2000);
      killed.signal(SIGKILL);
      CHECK(killed.wait().code == 128 + SIGKILL);
      const Ended again = Process(place.scratch.path(), on_gpu(name, settings), 1, kProgram).wait();
      INFO(again.out << again.err);
      CHECK(again.code == 0);
      CHECK(again.out.find("resumed after step") != std::string::npos);
      CHECK(place.metrics(name) == place.metrics("whole-" + rounding));
      CHECK(place.differ("whole-" + rounding, name) == 0);
      return again.out;
    };
    CHECK(Process(place.scratch.path(), on_gpu("whole-" + rounding, often), 1, kProgram).wait().code == 0);
    // With the optimizer's state in memory of the host: no other bits.
    const bool offloaded = rounding == "stochastic";
    const std::string told = kill_and_go_on(
        "killed-" + rounding, offloaded ? std::vector<std::string>{"train.offload=optimizer"} : std::vector<std::string>{});
    CHECK((told.find("pinned on the host") != std::string::npos) == offloaded);
  }
  CHECK(place.metrics("whole-stochastic") != place.metrics("whole-nearest"));
}

TEST_CASE("a run on the emulated GPU keeps how it does its products, and says when it cannot", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const auto file = place.scratch / "runs/kept/kernels.json";
  const auto go_on = [&](const char* steps) {
    const Ended ended =
        Process(place.scratch.path(),
                on_gpu("kept", {"train.steps=" + std::string(steps), "train.schedule=constant", "train.warmup=0"}), 1, kProgram)
            .wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    return ended.out;
  };
  const std::string first = go_on("1");
  CHECK(first.find("tried in") != std::string::npos);
  auto kept = Json::parse(read_text(file));
  CHECK(kept.at("products").size() > 5);
  for (auto& [product, algorithm] : kept.at("products").members()) algorithm = "two";
  std::ofstream(file) << kept.dump();
  CHECK(go_on("2").find("tried in") == std::string::npos);
  CHECK(Json::parse(read_text(file)) == kept);
  kept.at("machine") = "another GPU";
  std::ofstream(file) << kept.dump();
  CHECK(go_on("3").find("kernels.json is of another GPU") != std::string::npos);
  CHECK(Json::parse(read_text(file)).at("machine") != "another GPU");
}

// In short runs: the emulation takes a second for a step of four ranks.
TEST_CASE("every axis of a mesh on emulated GPUs has the losses of one rank on the CPU", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  for (const std::string family : {"gpt2", "llama"}) {
    const std::vector<std::string> model{"model.family=" + family, "model.layers=2",     "kernels.dtype=bf16", "train.steps=4",
                                         "train.warmup=2",         "train.eval_every=0", "train.microbatch=1"};
    std::vector<std::string> cpu = model;
    cpu.push_back("train.name=cpu-" + family);
    succeed(place.train(cpu));
    const auto wanted = place.metrics("cpu-" + family);
    // Biases and learned positions, of gpt2 alone, are divided by some of them.
    for (const auto& [mesh, ranks, divides_biases] :
         {std::tuple("parallel.tp=1", 2, false), std::tuple("parallel.tp=2", 2, true),
          std::tuple("parallel.tp_overlap=true", 2, true), std::tuple("parallel.pp=2", 2, true),
          std::tuple("parallel.schedule=zero_bubble_v", 2, false), std::tuple("parallel.zero=3", 2, true),
          std::tuple("parallel.shard=2", 4, false)}) {
      if (family == "gpt2" && !divides_biases) continue;
      const std::string name = family + "-" + mesh;
      std::vector<std::string> settings = model;
      settings.push_back(mesh);
      const bool several = settings.back().starts_with("parallel.schedule");  // pieces on each stage
      if (several) settings.push_back("parallel.pp=2");
      if (settings.back().starts_with("parallel.tp_overlap")) settings.push_back("parallel.tp=2");
      if (ranks == 4) settings.insert(settings.end(), {"parallel.zero=3", "parallel.reduce=bf16"});
      const Scratch order;
      setenv("TRIREME_NCCL_ORDER", order.path().c_str(), 1);
      const Ended ended = Process(place.scratch.path(), on_gpu(name, settings), ranks, kProgram).wait();
      unsetenv("TRIREME_NCCL_ORDER");
      INFO(name << ended.out << ended.err);
      REQUIRE(ended.code == 0);
      // Messages of several pieces need lanes that run at the same time.
      if (!several) CHECK(emulation::circle_of_calls(order.path()) == "");
      const auto got = place.metrics(name);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const char* key = got[i].contains("loss") ? "loss" : "val_loss";
        CHECK(got[i].at(key).get<double>() == Approx(wanted[i].at(key).get<double>()).epsilon(0.02));
      }
    }
  }
}

TEST_CASE("copies that compress or meet seldom have the CPU's losses on emulated GPUs", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const std::vector<std::vector<std::string>> ways{
      {"parallel.compress=int8"},
      {"parallel.compress=powersgd", "parallel.compress_rank=2"},
      {"parallel.local_steps=2", "parallel.compress=bf16", "parallel.local_moments=mean"},
      {"parallel.compress=int8", "parallel.apart_after=3", "train.steps=6"}};
  for (size_t i = 0; i < ways.size(); ++i) {
    CAPTURE(i);
    std::vector<std::string> settings{"parallel.zero=0", "train.steps=4",      "train.warmup=2",
                                      "model.layers=2",  "train.eval_every=0", "train.microbatch=1"};
    settings.insert(settings.end(), ways[i].begin(), ways[i].end());
    std::vector<std::string> cpu = settings;
    cpu.push_back("train.name=cpu" + std::to_string(i));
    succeed(place.train(cpu, 2));
    const std::string name = "gpu" + std::to_string(i);
    const Ended ended = Process(place.scratch.path(), on_gpu(name, settings), 2, kProgram).wait();
    INFO(ended.out << ended.err);
    REQUIRE(ended.code == 0);
    const auto wanted = place.metrics("cpu" + std::to_string(i)), got = place.metrics(name);
    REQUIRE(got.size() == wanted.size());
    for (size_t k = 0; k < got.size(); ++k) {
      const char* key = got[k].contains("loss") ? "loss" : "val_loss";
      CHECK(got[k].at(key).get<double>() == Approx(wanted[k].at(key).get<double>()).epsilon(1e-3));
    }
  }
}

TEST_CASE("with invariant numerics emulated GPUs compute the same bits on every mesh", "[unsanitized]") {
  if (!emulated()) return;
  const Workplace place;
  const std::vector<std::string> exact{
      "parallel.numerics=invariant", "parallel.max_tp=2", "train.microbatch=1", "train.steps=4", "train.warmup=2",
      "train.eval_every=0",          "model.layers=2"};
  const auto train = [&](const std::string& name, std::vector<std::string> mesh, int ranks) {
    mesh.insert(mesh.end(), exact.begin(), exact.end());
    const Ended ended = Process(place.scratch.path(), on_gpu(name, mesh), ranks, kProgram).wait();
    INFO(name << ended.out << ended.err);
    REQUIRE(ended.code == 0);
  };
  train("one", {}, 1);
  train("dp2", {}, 2);
  train("dp2-zero3", {"parallel.zero=3"}, 2);
  train("dp4-shard2", {"parallel.zero=2", "parallel.shard=2"}, 4);
  train("tp2", {"parallel.tp=2"}, 2);
  train("tp2-overlap", {"parallel.tp=2", "parallel.tp_overlap=true"}, 2);
  train("dp2-pp2", {"parallel.pp=2"}, 4);
  train("pp2-turned", {"parallel.pp=2", "parallel.schedule=zero_bubble_v", "train.recompute=full"}, 2);
  train("fp8", {"kernels.dtype=bf16", "kernels.matmul=fp8"}, 1);
  train("fp8-tp2-pp2",
        {"kernels.dtype=bf16", "kernels.matmul=fp8", "parallel.tp=2", "parallel.tp_overlap=true", "parallel.pp=2",
         "parallel.schedule=zero_bubble", "train.recompute=selective"},
        4);
  train("fp8-dp2-zero3", {"kernels.dtype=bf16", "kernels.matmul=fp8", "parallel.zero=3"}, 2);
  const auto same = [&](const std::string& one, const std::string& name) {
    INFO(name);
    CHECK(place.metrics(name) == place.metrics(one));
    CHECK(place.differ(one, name) == 0);
  };
  for (const std::string name : {"dp2", "dp2-zero3", "dp4-shard2", "tp2", "tp2-overlap", "dp2-pp2", "pp2-turned"})
    same("one", name);
  for (const std::string name : {"fp8-tp2-pp2", "fp8-dp2-zero3"}) same("fp8", name);
}

TEST_CASE("a step is measured on the emulated GPU, op by op", "[unsanitized][alone]") {
  if (!emulated()) return;
  const Workplace place;
  const Ended bench = Process(place.scratch.path(),
                              {"bench", "step", "config.yaml", "--json", "step.json", "--set", "kernels.device=cuda", "--set",
                               "model.context=16", "--set", "train.batch=1", "--set", "train.microbatch=1"},
                              1, kProgram)
                          .wait();
  INFO(bench.out << bench.err);
  REQUIRE(bench.code == 0);
  CHECK(bench.out.find("emulated GPU") != std::string::npos);
  const auto told = Json::parse(read_text(place.scratch / "step.json"));
  CHECK(told.at("tokens") == 16);
  double inside = 0;
  for (const auto& op : told.at("ops")) {
    CHECK(op.at("calls").get<int64_t>() > 0);
    CHECK(op.at("seconds").get<double>() > 0);
    inside += op.at("seconds").get<double>();
  }
  CHECK(inside < 3 * told.at("step_seconds").at(0).get<double>());
}

}  // namespace trireme
