// Results as JSON: standard output holds them alone, and docs/json.md has every name.
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "test/train/workplace.h"

using namespace trireme;

namespace {

// Words in backquotes on docs/json.md under the heading that names the command.
std::set<std::string> documented_names(const std::string& command) {
  std::istringstream page(read_text(TRIREME_SOURCE "/docs/json.md"));
  std::set<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = (", " + line.substr(3) + ",").find(", " + command + ",") != std::string::npos;
    if (!inside) continue;
    for (size_t open = line.find('`'); open != std::string::npos; open = line.find('`', line.find('`', open + 1) + 1))
      names.insert(line.substr(open + 1, line.find('`', open + 1) - open - 1));
  }
  return names;
}

// Names of all objects within `json`, but for those whose names are data.
void collect_names(const Json& json, std::set<std::string>& names) {
  if (json.is_array())
    for (const Json& item : json) collect_names(item, names);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.members()) {
    names.insert(name);
    if (name == "parameter_groups" || name == "mesh" || (name == "model" && value.is_object())) continue;
    if ((name != "ops" && name != "traffic") || value.is_array()) {
      collect_names(value, names);
      continue;
    }
    for (const auto& [op, count] : value.members()) collect_names(count, names);
  }
}

// Runs the command with --json -, and again with --json FILE, which must hold the same names.
Json results_of(const std::string& directory, std::vector<std::string> words, const std::string& command, int code = 0) {
  INFO(command);
  std::vector<std::string> to_file = words;
  to_file.insert(to_file.end(), {"--json", "made/out.json"});
  words.insert(words.end(), {"--json", "-"});
  const Ended ended = run_trireme(directory, words);
  INFO(ended.err);
  CHECK(ended.code == code);
  const Json json = Json::parse(ended.out);  // nothing else is there
  CHECK(!ended.err.empty());                 // what people read
  const Ended filed = run_trireme(directory, to_file);
  CHECK(filed.code == code);
  CHECK((!filed.out.empty() || code != 0));
  std::set<std::string> names, in_file;
  collect_names(json, names);
  collect_names(Json::parse(read_text(directory + "/made/out.json")), in_file);
  CHECK(names == in_file);
  const std::set<std::string> known = documented_names(command);
  for (const std::string& name : names) {
    INFO("docs/json.md, " << command << ": " << name);
    CHECK((known.contains(name) || known.contains("cuda." + name) || known.contains("pipeline." + name)));
  }
  return json;
}

}  // namespace

TEST_CASE("version and doctor write JSON with documented names") {
  const Scratch scratch;
  const Json version = results_of(scratch.path(), {"version"}, "version");
  CHECK_THAT(run_trireme(scratch.path(), {"--version"}).out, ContainsSubstring("trireme " + version["version"].string() + " ("));
  const Json doctor = results_of(scratch.path(), {"doctor"}, "doctor");
  CHECK(doctor["memory_bytes"].get<double>() > 1e8);
  CHECK(doctor["copy_bytes_per_second"].get<double>() > 1e6);
  CHECK(doctor["launched_ranks"].is_null());
  const Json fabric = results_of(scratch.path(), {"doctor", "--fabric"}, "doctor");
  CHECK(fabric["fit"] == true);
  CHECK(fabric["ranks"][0]["product_flops_per_second"].get<double>() > 1e8);
  const int refused = run_trireme(scratch.path(), {"doctor", "config.yaml"}).code;
  CHECK(refused == 2);  // needs --fabric
}

TEST_CASE("doctor leaves out instructions that oneDNN may not use") {
  const Scratch scratch;
  setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
  const Ended ended = run_trireme(scratch.path(), {"doctor"});
  unsetenv("DNNL_MAX_CPU_ISA");
  CHECK_THAT(ended.out, ContainsSubstring("bf16 products   f32, ours\n"));
}

TEST_CASE("plan writes JSON with documented names") {
  const Scratch scratch;
  const std::string config = TRIREME_SOURCE "/configs/quickstart.yaml";
  const Json plan = results_of(scratch.path(), {"plan", config, "--ranks", "2", "--set", "parallel.pp=2"}, "plan");
  CHECK(plan["bytes"]["total"] == plan["bytes"]["device"]);
  CHECK(plan["stages"].size() == 2);
  CHECK(plan["traffic"].size() > 0);
}

TEST_CASE("shards and damage to them are reported as JSON") {
  const Scratch scratch;
  write_text(scratch / "a.jsonl", "{\"text\": \"some text\"}\n{\"text\": \"more\"}\n");
  write_text(scratch / "b.txt", "held out");
  succeed(run_trireme(scratch.path(),
                      {"data", "build", "a.jsonl", "--output", "out", "--tokenizer", "bytes", "--validation-input", "b.txt"}));
  const Json info =
      results_of(scratch.path(), {"data", "info", "out", "--lengths", "--samples", "1", "--tokenizer", "bytes"}, "data info");
  CHECK(info["shards"].size() == 2);
  CHECK(info["shards"][0]["tokens"] == 15);
  CHECK(info["total"]["tokens"] == 24);
  CHECK(info["total"]["text_bytes"] == 21);
  CHECK(info["lengths"]["longest_tokens"] == 10);
  CHECK(info["samples"][0]["text"] == "some text");
  CHECK(results_of(scratch.path(), {"data", "verify", "out"}, "data verify")["shards"][1]["undamaged"] == true);
  std::string bytes = read_text(scratch / "out/train-00000.h5");
  bytes[bytes.size() - 100] ^= 1;
  write_text(scratch / "out/train-00000.h5", bytes);
  const Json damaged = results_of(scratch.path(), {"data", "verify", "out"}, "data verify", 3);
  CHECK(damaged["shards"][0]["undamaged"] == false);
  CHECK_THAT(damaged["shards"][0]["problem"].string(), ContainsSubstring("out/train-00000.h5"));
  CHECK(damaged["shards"][1]["undamaged"] == true);
}

TEST_CASE("checkpoints, evaluations and exports are reported as JSON") {
  const Workplace place;
  succeed(place.train({}));
  const std::string& directory = place.scratch.path();
  const Json list = results_of(directory, {"checkpoint", "list", "runs/tiny"}, "checkpoint list");
  REQUIRE(list["checkpoints"].size() > 0);
  const Json newest = list["checkpoints"].back();
  CHECK(newest["step"] == 20);
  CHECK(newest["problem"].is_null());
  const Json verified = results_of(directory, {"checkpoint", "verify", "runs/tiny"}, "checkpoint verify");
  CHECK(verified["checkpoints"].size() == list["checkpoints"].size());
  CHECK(verified["checkpoints"].back()["undamaged"] == true);
  const Json same = results_of(directory, {"checkpoint", "diff", "runs/tiny", "runs/tiny"}, "checkpoint diff");
  CHECK(same["same"] == true);
  const Json other = results_of(directory, {"checkpoint", "diff", "runs/tiny", list["checkpoints"][0]["directory"].string()},
                                "checkpoint diff", 4);
  CHECK(other["same"] == false);
  write_text(place.scratch / "text.txt", "abcdabcd");
  const Json eval = results_of(directory, {"eval", "runs/tiny", "--text", "text.txt"}, "eval");
  CHECK(eval["step"] == 20);
  CHECK(eval["text"]["bytes"] == 8);
  CHECK(eval["text"]["loss"].get<double>() > 0);
  const Json sample = results_of(directory, {"sample", "runs/tiny", "--prompt", "a", "--tokens", "2"}, "sample");
  CHECK(sample["prompt"] == "a");
  const Json exported = results_of(directory, {"model", "export", "runs/tiny", "published", "--replace"}, "model export");
  CHECK(exported["output"] == "published");
  CHECK(exported["files"] == 1);
}

TEST_CASE("benchmarks write JSON with documented names") {
  const Workplace place;
  const std::string& directory = place.scratch.path();
  const auto names_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--json", "-"});
    const Ended ended = run_trireme(directory, words);
    INFO(ended.err);
    CHECK(ended.code == 0);
    const Json json = Json::parse(ended.out);
    std::set<std::string> names;
    for (const auto& [name, value] : json.members()) names.insert(name);
    const std::string page = read_text(TRIREME_SOURCE "/docs/json.md");
    for (const std::string& name : names) CHECK_THAT(page.substr(page.find("## bench")), ContainsSubstring("`" + name + "`"));
    return json;
  };
  const Json step = names_of({"step", "config.yaml"});
  CHECK(step["tokens_per_second"].get<double>() > 0);
  CHECK(step["ops"].size() > 3);
  const Json kernels = names_of({"kernels", "--only", "fill"});
  CHECK(kernels["copy_bytes_per_second"].get<double>() > 1e6);
  const Json save = names_of({"save", "config.yaml", "--rounds", "2"});
  CHECK(save["rounds"] == 2);
  const Json data = names_of({"data", "shards/train-*.h5", "--context", "16", "--batch", "4", "--rounds", "1"});
  CHECK(data["readings"].size() == 10);
  write_text(place.scratch / "text.txt", "some text");
  CHECK(names_of({"tokenizer", "bytes", "text.txt", "--rounds", "1"})["text_bytes"] == 9);
}

TEST_CASE("an output for JSON that cannot be written is refused before the work") {
  const Scratch scratch;
  write_text(scratch / "file", "");
  const Ended refused = run_trireme(scratch.path(), {"doctor", "--json", "file/out.json"});
  CHECK(refused.code == 3);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, ContainsSubstring("file"));
}
