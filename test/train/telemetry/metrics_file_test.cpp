#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "base/replace_file.h"
#include "test/train/telemetry/run_records.h"

namespace trireme {

TEST_CASE("losses and norms in metrics.jsonl read back as the same floats") {
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<uint32_t>(i * 2654435761u) ^ static_cast<uint32_t>(i << 7);
    const auto loss = std::bit_cast<float>(bits), norm = std::bit_cast<float>(~bits);
    if (!std::isfinite(loss) || !std::isfinite(norm)) continue;
    const std::string line = json_line(StepRecord{.step = 1, .loss = loss, .grad_norm = norm});
    float read_loss = 0, read_norm = 0;
    for (auto [key, value] : {std::pair{"\"loss\": ", &read_loss}, std::pair{"\"grad_norm\": ", &read_norm}}) {
      const char* begin = line.data() + line.find(key) + std::string_view(key).size();
      REQUIRE(std::from_chars(begin, line.data() + line.size(), *value).ec == std::errc());
    }
    REQUIRE(std::bit_cast<uint32_t>(read_loss) == bits);
    REQUIRE(std::bit_cast<uint32_t>(read_norm) == ~bits);
    REQUIRE(static_cast<float>(Json::parse(line)["loss"].get<double>()) == loss);  // through a double, as most readers do
  }
  const Json lr = Json::parse(json_line(StepRecord{.lr = 0.1 + 0.2}));
  CHECK(lr["lr"].get<double>() == 0.1 + 0.2);
}

TEST_CASE("metrics lines hold the documented keys in their order, and null for what is not finite") {
  CHECK(json_line(step_record(3)) ==
        "{\"step\": 3, \"loss\": 2.5, \"grad_norm\": 0.75, \"lr\": 0.001, \"tokens\": 3000, \"step_ms\": 12.500, "
        "\"data_ms\": 0.100, \"tokens_per_second\": 80000.0, \"mfu\": 0.4000, \"mfu_full\": null, \"hfu\": null}\n");
  CHECK(json_line(eval_record(3)) ==
        "{\"step\": 3, \"val_loss\": 2.25, \"bits_per_byte\": 1.125, \"val_tokens\": 5000, \"seconds\": 0.500}\n");
  CHECK(json_line(save_record(3)) ==
        "{\"step\": 3, \"saved_bytes\": 3145728, \"saved_seconds\": 0.500, \"write_gb_per_second\": 0.013, "
        "\"save_stall_ms\": 1.500, \"tier\": \"disk\", \"run\": \"00000000000000000000000000000001\", \"scrubbed_bytes\": 4096}\n");
  const Json object = Json::parse(json_line(StepRecord{.step = 1, .loss = NAN, .grad_norm = -INFINITY, .mfu = NAN}));
  CHECK(object["loss"].is_null());
  CHECK(object["grad_norm"].is_null());
  CHECK(object["mfu"].is_null());
}

TEST_CASE("a resumed metrics.jsonl keeps the lines up to its step and drops later and torn ones") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  const ChoicesRecord asked{.step = 2, .name = "a \"b\"", .accuracy = 0.25, .normalised = 1.0 / 3, .questions = 12};
  const std::string kept =
      json_line(step_record(1)) + json_line(step_record(2, NAN)) + json_line(eval_record(2)) + json_line(asked);
  const std::string later = json_line(step_record(3)) + json_line(eval_record(3)) + json_line(step_record(4));
  const std::string last = json_line(step_record(5));
  for (size_t torn = 0; torn <= last.size(); torn += 7) {
    write_text(path, kept + later + last.substr(0, torn));
    std::vector<int64_t> steps, evals;
    std::vector<double> losses;
    std::string answers;
    {
      MetricsFile file(directory.path(), 2,
                       {.step = [&](const StepRecord& r) { steps.push_back(r.step), losses.push_back(r.loss); },
                        .eval = [&](const EvalRecord& r) { evals.push_back(r.step); },
                        .choices = [&](const ChoicesRecord& r) { answers += json_line(r); }});
      CHECK(answers == json_line(asked));
      CHECK(file.dropped() == (torn > 0 ? 4 : 3));
      CHECK(file.append(json_line(step_record(3, 1.5))));
      CHECK(file.sync());
    }
    CHECK(read_text(path) == kept + json_line(step_record(3, 1.5)));
    CHECK(steps == std::vector<int64_t>{1, 2});
    CHECK(evals == std::vector<int64_t>{2});
    CHECK(losses[0] == 2.5);
    CHECK(std::isnan(losses[1]));
  }
  CHECK_FALSE(std::filesystem::exists(directory / "metrics.jsonl.tmp"));
}

TEST_CASE("a whole last line without its newline is kept, and garbage is not") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  const std::string garbage = "\n[1]\n{\"step\": \"1\"}\n{\"step\": -3, \"loss\": 1}\n\xff\xfe\n" + std::string(10, '\0') + "\n" +
                              std::string(100000, '[') + "\n{\"step\": 99999999999999999999}\n";
  std::string whole = json_line(step_record(1));
  whole.pop_back();
  write_text(path, garbage + whole);
  { MetricsFile file(directory.path(), 1, {}); }
  CHECK(read_text(path) == json_line(step_record(1)));
}

TEST_CASE("a fresh run begins metrics.jsonl anew, and a resume without the file begins it too") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  write_text(path, json_line(step_record(1)));
  { MetricsFile file(directory.path(), -1, {}); }
  CHECK(read_text(path).empty());
  std::filesystem::remove(path);
  { MetricsFile file(directory.path(), 10, {}); }
  CHECK(read_text(path).empty());
  for (const int64_t resume_step : {-1, 3}) {
    const std::string file = std::string(directory / "absent/metrics.jsonl") + (resume_step < 0 ? "" : ".tmp");
    const std::string problem = file + ": No such file or directory; choose another directory";
    CHECK_THROWS_WITH(MetricsFile(directory / "absent", resume_step, {}), problem);
  }
}

TEST_CASE("exit.json holds code, cause, rank, host, step and message, whatever the message holds") {
  const Scratch directory;
  write_exit(directory.path(), ExitCode::data, "DataError", 3, 17, "a \"bad\"\nfile \xff \\", "gpu-12");
  const Json exit = Json::parse(read_text(directory / "exit.json"));
  CHECK(exit["code"] == 3);
  CHECK(exit["cause"] == "DataError");
  CHECK(exit["rank"] == 3);
  CHECK(exit["step"] == 17);
  CHECK(exit["host"] == "gpu-12");
  CHECK_THAT(exit["message"].get<std::string>(), ContainsSubstring("a \"bad\"\nfile "));
  CHECK_FALSE(std::filesystem::exists(directory / "exit.json.tmp"));
  write_exit(directory.path(), ExitCode::machine, "machine", 3, 0, "unfit", "");
  CHECK(Json::parse(read_text(directory / "exit.json"))["host"] == "");
  const std::string said =
      written_by(STDERR_FILENO, [&] { write_exit(directory / "absent", ExitCode::done, "", 0, -1, "", "n1"); });
  CHECK_THAT(said, ContainsSubstring("cannot write"));
}

TEST_CASE("a refused write leaves the old file whole") {
  const Scratch directory;
  const std::string path = directory / "file";
  CHECK(replace_file(path, "old"));
  CHECK(replace_file_durably(path, "new"));
  CHECK(read_text(path) == "new");
  std::filesystem::create_directories(path + ".tmp");  // stands in the way of the temporary file
  CHECK_FALSE(replace_file(path, "newer"));
  CHECK_FALSE(replace_file_durably(path, "newer"));
  CHECK(read_text(path) == "new");
}

}  // namespace trireme
