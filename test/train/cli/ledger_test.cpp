// The ledger of a run: which documents its steps have read, and what is left out of runs to come.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "base/philox.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// Documents of letters, a line each; those whose number is in `other` say something else, of the same length.
std::string write_lines(const Scratch& scratch, const std::string& name, uint64_t key, const std::vector<int>& other = {}) {
  std::string lines;
  for (int i = 0; i < 80; ++i) {
    std::string words;
    const bool replaced = std::ranges::find(other, i) != other.end();
    for (uint64_t j = 0; j < 40 + philox64(key, static_cast<uint64_t>(i)) % 90; ++j)
      words += static_cast<char>((replaced ? 'A' : 'a') + philox64(key + 1, static_cast<uint64_t>(i) << 20 | j) % 16);
    lines += Json{{"text", words}}.dump() + "\n";
  }
  write_text(scratch / name, lines);
  return name;
}

const char* const kLedgerConfig = R"(
kernels: {dtype: f32, threads: 1}
model: {family: llama, layers: 1, width: 32, heads: 2, vocab: 257, context: 32, document_mask: true}
data: {train: [a/train-00000.h5], tokenizer: bytes}
checkpoint: {every: 3, keep: 2}
train: {name: tiny, steps: 6, batch: 4, microbatch: 1, lr: 0.01, warmup: 2, eval_every: 0}
)";

struct LedgerPlace {
  Scratch scratch;
  LedgerPlace() { write_text(scratch / "config.yaml", kLedgerConfig); }
  void build(const std::string& lines, const std::string& output) const {
    succeed(run({"data", "build", lines, "--output", output, "--tokenizer", "bytes"}));
  }
  Ended run(const std::vector<std::string>& words) const { return run_trireme(scratch.path(), words); }
  Ended train(const std::vector<std::string>& settings, bool allow = false) const {
    std::vector<std::string> words = Workplace::arguments(settings);
    if (allow) words.emplace_back("--resume-allow");
    return run(words);
  }
  std::vector<Json> json(const std::vector<std::string>& words) const {
    const Ended ended = run(words);
    INFO(ended.err);
    REQUIRE(ended.code == 0);
    std::vector<Json> lines;
    std::istringstream in(ended.out);
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<std::pair<float, float>> losses(const std::string& name) const {  // and gradient norms
    std::vector<std::pair<float, float>> all;
    std::istringstream in(read_text(scratch / ("runs/" + name + "/metrics.jsonl")));
    for (std::string line; std::getline(in, line);)
      if (const Json one = Json::parse(line); one.contains("loss") && one.at("loss").is_number())
        all.emplace_back(one.at("loss"), one.at("grad_norm"));
    return all;
  }
};

}  // namespace

TEST_CASE("a run lists the documents of its steps, also of those before a change of data") {
  const LedgerPlace place;
  place.build(write_lines(place.scratch, "a.jsonl", 1), "a");
  place.build(write_lines(place.scratch, "b.jsonl", 5), "b");
  succeed(place.train({}));
  const std::vector<std::string> later{"train.steps=12", "data.train=b/train-00000.h5"};
  CHECK(place.train(later).code == 2);
  succeed(place.train(later, true));

  for (const auto& [step, file] : {std::pair("5-6", "a.jsonl"), {"7-8", "b.jsonl"}}) {
    const auto rows = place.json({"data", "where", "runs/tiny", "--step", step, "--json", "-", "--text", "1000"});
    REQUIRE(rows.size() == 8);
    const std::string lines = read_text(place.scratch / file);
    for (const Json& row : rows) {
      int64_t at = row.at("begin");
      CHECK(row.at("end").get<int64_t>() == at + 33);
      for (const Json& document : row.at("documents")) {
        CHECK(document.at("begin") == at);
        at = document.at("end");
        REQUIRE(document.at("file") == file);
        const size_t offset = document.at("offset");
        CHECK(Json::parse(lines.substr(offset, lines.find('\n', offset) - offset)).at("text") == document.at("text"));
        CHECK(std::count(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(offset), '\n') + 1 == document.at("line"));
      }
      CHECK(at == row.at("end"));
    }
    const Json first = rows.front().at("documents").front();
    const std::string name = "train-00000.h5:" + first.at("number").dump();
    const auto steps = place.json({"data", "where", "runs/tiny", "--document", name, "--json", "-"});
    bool found = false;
    for (const Json& document : steps)
      for (const Json& each : document.at("steps"))
        found |= document.at("document") == rows.front().at("shard").get<std::string>() + ":" + first.at("number").dump() &&
                 each == rows.front().at("step");
    CHECK(found);
  }
  const Ended people = place.run({"data", "where", "runs/tiny", "--step", "7"});
  CHECK_THAT(people.out, ContainsSubstring("step 7, row 0, replica 0: ") && ContainsSubstring(", b.jsonl:"));
  CHECK_THAT(place.run({"data", "where", "runs/tiny", "--step", "13"}).err, ContainsSubstring("train.steps = 12"));
  CHECK_THAT(place.run({"data", "where", "runs/tiny", "--step", "x"}).err, ContainsSubstring("--step x: must be a step"));
  CHECK_THAT(place.run({"data", "where", "runs/tiny"}).err, ContainsSubstring("one of --step, --document and --file"));
  std::filesystem::remove(place.scratch / "runs/tiny/data.jsonl");
  CHECK_THAT(place.run({"data", "where", "runs/tiny", "--step", "7"}).err, ContainsSubstring("of its last start"));
  place.build(write_lines(place.scratch, "c.jsonl", 1), "c");
  const auto of_config =
      place.json({"data", "where", "config.yaml", "--set", "data.train=c/train-00000.h5", "--file", "c.jsonl", "--json", "-"});
  CHECK(of_config.size() == 80);
}

TEST_CASE("what excluded documents say changes no loss, no gradient and no weight") {
  const LedgerPlace place;
  const std::vector<int> left_out{3, 4, 17, 30, 31, 32, 55};
  place.build(write_lines(place.scratch, "a.jsonl", 1), "a");
  place.build(write_lines(place.scratch, "b.jsonl", 1, left_out), "b");
  std::string list;
  for (const int number : left_out) list += "train-00000.h5:" + std::to_string(number) + "\n";
  write_text(place.scratch / "list", list);
  const auto train = [&](const std::string& corpus, bool masked, const std::string& dtype) {
    const std::string name = corpus + (masked ? "-masked-" : "-whole-") + dtype;
    std::vector<std::string> settings{"train.name=" + name, "train.steps=14", "data.train=" + corpus + "/train-00000.h5",
                                      "kernels.dtype=" + dtype};
    if (masked) settings.push_back("data.exclude=" + corpus + ".mask");
    succeed(place.train(settings));
    return place.losses(name);
  };
  for (const char* corpus : {"a", "b"})
    succeed(place.run({"data", "exclude", corpus, "--output", std::string(corpus) + ".mask", "--documents", "list"}));
  for (const char* dtype : {"f32", "bf16"}) {
    const auto whole = train("a", false, dtype), other = train("b", false, dtype);
    const auto masked = train("a", true, dtype), masked_other = train("b", true, dtype);
    REQUIRE(masked.size() == 14);
    CHECK(whole != other);
    CHECK(whole != masked);
    CHECK(masked == masked_other);
    const std::string of_a = std::string("runs/a-masked-") + dtype, of_b = std::string("runs/b-masked-") + dtype;
    CHECK(place.run({"checkpoint", "diff", of_a, of_b}).code == 0);
  }
  const std::vector<std::string> invariant{"data.exclude=a.mask", "parallel.numerics=invariant", "train.steps=9"};
  for (const int ranks : {1, 2}) {  // which have masked rows of their own, and the targets of all
    std::vector<std::string> settings = invariant;
    settings.push_back("train.name=ranks-" + std::to_string(ranks));
    succeed(Process(place.scratch.path(), Workplace::arguments(settings), ranks).wait());
  }
  CHECK(place.losses("ranks-1") == place.losses("ranks-2"));
  CHECK(place.run({"checkpoint", "diff", "runs/ranks-1", "runs/ranks-2"}).code == 0);
  const Ended told = place.run({"data", "info", "a.mask"});
  CHECK_THAT(told.out, ContainsSubstring("a.mask: 7 excluded documents in 1 shards") && ContainsSubstring("    55\n"));
  CHECK_THAT(read_text(place.scratch / "runs/a-masked-f32/log.txt"), ContainsSubstring("a.mask: 7 documents are not trained on"));
  succeed(place.train({"train.name=other", "data.exclude=b.mask"}));
  CHECK_THAT(read_text(place.scratch / "runs/other/log.txt"), ContainsSubstring("b.mask: none of its shards is in data.train"));
}

TEST_CASE("steps without a target are steps, and data that changes is refused until it is allowed") {
  const LedgerPlace place;
  place.build(write_lines(place.scratch, "a.jsonl", 1), "a");
  succeed(place.run({"data", "exclude", "a", "--output", "all.mask", "--match", "[a-p]+", "--tokenizer", "bytes"}));
  succeed(place.train({"train.name=nothing", "data.exclude=all.mask"}));
  for (const auto& [loss, norm] : place.losses("nothing")) CHECK((loss == 0 && norm == 0));
  CHECK(place.losses("nothing").size() == 6);

  const Ended unmasked = place.train({"data.exclude=all.mask", "model.document_mask=false"});
  CHECK(unmasked.code == 2);
  CHECK_THAT(unmasked.err, ContainsSubstring("data.exclude") && ContainsSubstring("needs model.document_mask = true"));

  succeed(place.train({}));
  succeed(place.run({"data", "exclude", "runs/tiny", "--output", "some.mask", "--step", "2-3"}));
  CHECK(place.run({"data", "exclude", "runs/tiny", "--output", "some.mask", "--step", "2"}).code == 3);
  const std::vector<std::string> more{"train.steps=9", "data.exclude=some.mask"};
  const Ended refused = place.train(more);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("data.exclude: leaves out other documents") && ContainsSubstring("--resume-allow"));
  succeed(place.train(more, true));
  succeed(place.train({"train.steps=10", "data.exclude=some.mask"}));

  write_lines(place.scratch, "a.jsonl", 9);
  succeed(place.run({"data", "build", "a.jsonl", "--output", "a", "--tokenizer", "bytes", "--replace"}));
  CHECK_THAT(place.train({"train.name=fresh", "data.exclude=some.mask"}).err, ContainsSubstring("was made for another content of"));
  CHECK_THAT(place.train({"train.steps=12"}).err, ContainsSubstring("data.train: its shards are not those"));
  const Ended gone = place.run({"data", "where", "runs/tiny", "--step", "2"});
  CHECK(gone.code == 3);
  CHECK_THAT(gone.err, ContainsSubstring("is not what the run has read"));
}

}  // namespace trireme
