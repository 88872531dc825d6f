// Loss masks: in shards, from JSON lines, and as targets of samples.
#include "data/shard/loss_mask.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "data/build/build.h"
#include "data/build/inspect.h"
#include "data/loader/loader.h"
#include "test/catch.h"
#include "test/data/damage.h"
#include "test/data/h5dump.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const ShardFacts kFacts{.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 1234};

std::vector<int32_t> random_ids(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(philox64(3, i) % 257);
  return tokens;
}

std::vector<uint8_t> random_mask(size_t count) {
  std::vector<uint8_t> trained(count);
  for (size_t i = 0; i < count; ++i) trained[i] = philox64(4, i) % 3 == 0 ? 1 : 0;
  return trained;
}

int64_t ones(const std::vector<uint8_t>& trained, size_t begin, size_t end) {
  return std::count(trained.begin() + static_cast<ptrdiff_t>(begin), trained.begin() + static_cast<ptrdiff_t>(end), 1);
}

BuildSummary built(const Scratch& scratch, const std::string& lines, DocumentOptions documents, BuildOptions options = {}) {
  write_text(scratch / "in.jsonl", lines);
  options.inputs = {scratch / "in.jsonl"};
  options.output = scratch / "out";
  options.documents = std::move(documents);
  return build_shards(options, *make_byte_tokenizer(), [](const BuildProgress&) {});
}

// The tokens of a shard as text, and of the targets alone, with # for end_of_document.
struct Shown {
  std::string all, targets;
};
Shown shown(const std::string& path) {
  const ShardReader shard(path);
  std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
  std::vector<uint8_t> trained(tokens.size());
  shard.read(0, tokens);
  shard.read_trained(0, trained);
  Shown shown;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const char letter = tokens[i] == 256 ? '#' : static_cast<char>(tokens[i]);
    shown.all += letter;
    if (trained[i] != 0) shown.targets += letter;
  }
  return shown;
}

}  // namespace

TEST_CASE("a shard gives back its loss mask, any stretch of it, and how many targets there are") {
  const Scratch scratch;
  const size_t count = GENERATE(size_t{1}, size_t{8}, size_t{13}, size_t{1100003});  // the last: bits of many pages
  const auto tokens = random_ids(count);
  const auto trained = random_mask(count);
  write_shard(scratch / "a.h5", kFacts, tokens, std::vector<int64_t>{0}, {.trained = trained, .trained_bytes = 77});
  const ShardReader shard(scratch / "a.h5");
  shard.verify();
  CHECK(shard.has_loss_mask());
  CHECK(shard.trained_tokens() == ones(trained, 0, count));
  CHECK(shard.trained_bytes() == 77);
  std::vector<uint8_t> all(count);
  shard.read_trained(0, all);
  CHECK(all == trained);
  for (uint64_t i = 0; i < 100; ++i) {
    const size_t begin = philox64(1, i) % count, length = philox64(2, i) % (count - begin + 1);
    std::vector<uint8_t> some(length);
    shard.read_trained(static_cast<int64_t>(begin), some);
    CHECK(std::equal(some.begin(), some.end(), trained.begin() + static_cast<ptrdiff_t>(begin)));
    CHECK(shard.count_trained(static_cast<int64_t>(begin), static_cast<int64_t>(begin + length)) ==
          ones(trained, begin, begin + length));
  }
  std::vector<int32_t> same(count);
  shard.read(0, same);
  CHECK(same == tokens);
  std::vector<uint8_t> beyond(2);
  CHECK_THROWS_AS(shard.read_trained(static_cast<int64_t>(count) - 1, beyond), Error);
}

TEST_CASE("without a loss mask all tokens are targets, and the file has nothing of it") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", kFacts, random_ids(100), std::vector<int64_t>{0});
  const ShardReader shard(scratch / "a.h5");
  CHECK_FALSE(shard.has_loss_mask());
  CHECK(shard.trained_tokens() == 100);
  CHECK(shard.trained_bytes() == 1234);
  CHECK(shard.count_trained(7, 50) == 43);
  std::vector<uint8_t> all(100);
  shard.read_trained(0, all);
  CHECK(all == std::vector<uint8_t>(100, 1));
  CHECK(read_hdf5_layout(scratch / "a.h5").datasets.size() == 3);
  const std::string bytes = read_text(scratch / "a.h5");
  for (const char* word : {"loss_mask", "trained", "row"}) CHECK(bytes.find(word) == std::string::npos);
}

TEST_CASE("a flipped bit anywhere in a shard with a loss mask is found, and so is any truncation") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  write_shard(path, kFacts, random_ids(320), std::vector<int64_t>{0, 10, 64, 128, 192, 200, 256},
              {.trained = random_mask(320), .trained_bytes = 9, .row = 64});
  const std::string sound = read_text(path);
  File file = File::open_to_write(path);
  CHECK(unnoticed_flips(path) == 0);
  const auto layout = read_hdf5_layout(path);
  const auto mask = std::ranges::find(layout.datasets, std::string("loss_mask"), &Hdf5Dataset::name);
  REQUIRE(mask != layout.datasets.end());
  for (int64_t bit = 0; bit < mask->bytes * 8; ++bit) {  // each of the mask's
    const char flipped = static_cast<char>(sound[static_cast<size_t>(mask->offset + bit / 8)] ^ (1 << bit % 8));
    file.write_at(&flipped, 1, mask->offset + bit / 8);
    CHECK_THROWS_WITH(ShardReader(path).verify(), ContainsSubstring("the loss mask's bits of tokens 0 to 319 are damaged"));
    file.write_at(&sound[static_cast<size_t>(mask->offset + bit / 8)], 1, mask->offset + bit / 8);
  }
  ShardReader(path).verify();
  for (size_t length = 0; length < sound.size(); length += 97) {
    write_text(path, sound.substr(0, length));
    CHECK_THROWS_AS(ShardReader(path), DataError);
  }
}

TEST_CASE("a loss mask that is damaged is found when it is read, and the tokens are read without it") {
  const Scratch scratch;
  const std::string path = scratch / "a.h5";
  write_shard(path, kFacts, random_ids(600000), std::vector<int64_t>{0}, {.trained = random_mask(600000)});
  std::string bytes = read_text(path);
  const auto layout = read_hdf5_layout(path);
  const auto mask = std::ranges::find(layout.datasets, std::string("loss_mask"), &Hdf5Dataset::name);
  bytes[static_cast<size_t>(mask->offset) + 70000] ^= 16;
  write_text(path, bytes);
  const ShardReader shard(path);
  std::vector<int32_t> tokens(600000);
  shard.read(0, tokens);
  CHECK(shard.count_trained(0, 557056) > 0);
  CHECK(shard.count_trained(589824, 600000) > 0);
  CHECK_THROWS_WITH(shard.count_trained(557056, 557057),
                    ContainsSubstring("a.h5: the loss mask's bits of tokens 557056 to 589823"));
}

TEST_CASE("HDF5's own tools show a loss mask") {
  const Scratch scratch;
  write_shard(scratch / "a.h5", kFacts, random_ids(11), std::vector<int64_t>{0},
              {.trained = std::vector<uint8_t>{1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1}});
  if (!has_h5dump()) return;
  REQUIRE(std::system(("h5dump -d loss_mask " + scratch / "a.h5" + " > " + scratch / "out").c_str()) == 0);
  CHECK_THAT(read_text(scratch / "out"), ContainsSubstring("(0): 133, 6"));  // 1 + 4 + 128, 2 + 4
}

TEST_CASE("HDF5's own tools show what a build has written") {
  const Scratch scratch;
  const auto summary =
      built(scratch, "{\"q\": \"Q:\", \"a\": \"yes\"}\n{\"q\": \"R\", \"a\": \"no\"}\n", {.prompt = "q", .response = "a"});
  REQUIRE(summary.train.shards.size() == 1);
  if (!has_h5dump()) return;
  const auto dumped = [&](const std::string& options) {
    REQUIRE(std::system(("h5dump " + options + " " + summary.train.shards[0] + " > " + scratch / "dump").c_str()) == 0);
    return read_text(scratch / "dump");
  };
  CHECK_THAT(dumped("-d tokens"),
             ContainsSubstring("H5T_STD_U16LE") && ContainsSubstring("81, 58, 121, 101, 115, 256, 82, 110, 111, 256"));
  CHECK_THAT(dumped("-d document_starts"), ContainsSubstring("(0): 0, 6"));
  CHECK_THAT(dumped("-d loss_mask"), ContainsSubstring("(0): 188, 3"));  // of the bits 2 to 5 and 7 to 9
  CHECK_THAT(dumped("-d document_lines"), ContainsSubstring("(0): 1, 2"));
  CHECK_THAT(dumped("-a documents"), ContainsSubstring("(0): 2"));
  CHECK_THAT(dumped("-a trained_tokens"), ContainsSubstring("(0): 7"));
}

TEST_CASE("of prompts and responses the responses and their ends are targets, each encoded for itself") {
  const Scratch scratch;
  const auto summary = built(scratch,
                             "{\"prompt\": \"Q:\", \"response\": \"yes\"}\n"
                             "{\"prompt\": \"\", \"response\": \"alone\", \"text\": \"no\"}\n"
                             "{\"prompt\": \"R:\", \"response\": \"no\"}\n",
                             {.prompt = "prompt", .response = "response"});
  REQUIRE(summary.train.shards.size() == 1);
  const Shown found = shown(summary.train.shards[0]);
  CHECK(found.all == "Q:yes#alone#R:no#");
  CHECK(found.targets == "yes#alone#no#");
  CHECK(summary.train.documents == 3);
  CHECK(summary.train.trained_tokens == 13);
  const ShardReader shard(summary.train.shards[0]);
  shard.verify();
  CHECK(shard.trained_bytes() == 10);
  CHECK(shard.facts().text_bytes == 14);
  CHECK(describe_shards({scratch / "out"})[0].trained_tokens == 13);
}

TEST_CASE("a conversation is rendered in lines, and each answer's content and end are targets") {
  const Scratch scratch;
  const Json messages = {{{"role", "system"}, {"content", "S"}},      {{"role", "user"}, {"content", "U"}},
                         {{"role", "assistant"}, {"content", "one"}}, {{"role", "user"}, {"content", "V"}},
                         {{"role", "assistant"}, {"content", "two"}}, {{"role", "user"}, {"content", "not answered"}}};
  const auto summary = built(scratch, Json{{"chat", messages}}.dump() + "\n", {.messages = "chat"});
  const Shown found = shown(summary.train.shards[0]);
  CHECK(found.all == "<|system|>\nS\n<|user|>\nU\n<|assistant|>\none#\n<|user|>\nV\n<|assistant|>\ntwo#");
  CHECK(found.targets == "one#two#");
  CHECK(summary.train.documents == 1);
  CHECK(ShardReader(summary.train.shards[0]).documents() == 1);
}

TEST_CASE("lines without prompts, responses or conversations are refused with the reason") {
  const DocumentOptions pairs{.prompt = "p", .response = "r"}, chat{.messages = "m"};
  const std::tuple<DocumentOptions, const char*, const char*> cases[] = {
      {pairs, R"({"p": "x"})", "in.jsonl:1: has no field 'r'"},
      {pairs, R"({"r": "x"})", "has no field 'p'"},
      {pairs, R"({"p": 1, "r": "x"})", "field 'p' is not a string"},
      {pairs, R"({"p": "x", "r": ""})", "field 'r' is empty"},
      {chat, R"({"p": "x"})", "has no field 'm'"},
      {chat, R"({"m": "x"})", "field 'm' is not a list"},
      {chat, R"({"m": []})", "field 'm' has no message of the assistant"},
      {chat, R"({"m": [{"role": "user", "content": "x"}]})", "has no message of the assistant"},
      {chat, R"({"m": [7]})", "m[0] is not an object with strings 'role' and 'content'"},
      {chat, R"({"m": [{"role": "user"}]})", "m[0] is not an object with"},
      {chat, R"({"m": [{"role": "tool", "content": "x"}]})", "m[0].role is 'tool': must be system, user or assistant"},
      {chat, R"({"m": [{"role": "assistant", "content": ""}]})", "m[0] is empty"},
  };
  for (const auto& [options, line, message] : cases) {
    INFO(line);
    const Scratch scratch;
    DocumentOptions stopping = options;
    stopping.skip_bad = false;
    CHECK_THROWS_WITH(built(scratch, line, stopping), ContainsSubstring(message));
  }
  const Scratch scratch;
  write_text(scratch / "a.txt", "plain");
  BuildOptions plain{.inputs = {scratch / "a.txt"}, .validation_inputs = {}, .output = scratch / "out"};
  plain.documents = {.skip_bad = false, .prompt = "p", .response = "r"};
  CHECK_THROWS_WITH(build_shards(plain, *make_byte_tokenizer(), [](const BuildProgress&) {}),
                    ContainsSubstring("a.txt: is not a .jsonl file: prompts, responses and messages are fields of JSON lines"));
}

TEST_CASE("samples have targets where the mask says, and batches count them, also beside shards without a mask") {
  const Scratch scratch;
  constexpr int64_t T = 7;
  const auto tokens = random_ids(200);
  const auto trained = random_mask(200);
  write_shard(scratch / "a.h5", kFacts, tokens, std::vector<int64_t>{0}, {.trained = trained});
  write_shard(scratch / "b.h5", kFacts, random_ids(50), std::vector<int64_t>{0});
  for (const int64_t overlap : {0, 3}) {
    const Corpus corpus({scratch.path()}, T, true, overlap), masked({scratch / "a.h5"}, T, true, overlap);
    CHECK(corpus.padded());
    int64_t all = 0;
    for (int64_t sample = 0; sample < corpus.samples(); ++sample) {
      std::vector<int32_t> row[4];
      for (auto& field : row) field.resize(T);
      corpus.read(sample, true, false, {row[0].data(), row[1].data(), row[2].data(), row[3].data()});
      const int64_t found = std::ranges::count_if(row[1], [](int32_t id) { return id >= 0; });
      CHECK(corpus.targets(sample) == found);
      all += found;
      const int64_t begin = sample * (T - overlap);
      for (int64_t t = 0; t < T && sample < masked.samples() && begin + t + 1 < 200; ++t) {
        const auto next = static_cast<size_t>(begin + t + 1);
        const bool is_target = trained[next] != 0 && (sample == 0 || t >= overlap);
        CHECK(row[1][static_cast<size_t>(t)] == (is_target ? tokens[next] : -1));
      }
    }
    CHECK(corpus.targets() == all);
    CHECK(all == ones(trained, 1, 200) + 49);
  }
  const Corpus corpus({scratch.path()}, T, false);
  std::vector<int64_t> parts(10);  // by step: targets of both replicas
  for (const int replica : {0, 1}) {
    Loader loader(corpus, {.context = T,
                           .batch = 6,
                           .microbatch = 1,
                           .replica = replica,
                           .replicas = 2,
                           .seed = 1,
                           .document_mask = true,
                           .restart_positions = false});
    Loader whole(corpus, {.context = T, .batch = 6, .seed = 1, .document_mask = true, .restart_positions = false});
    for (int step = 0; step < 10; ++step) {
      const Batch batch = whole.next();
      CHECK(batch.valid ==
            std::count_if(batch.targets.as<int32_t>(), batch.targets.as<int32_t>() + 6 * T, [](int32_t id) { return id >= 0; }));
      parts[static_cast<size_t>(step)] += loader.next().valid;
      if (replica == 1) CHECK(parts[static_cast<size_t>(step)] == batch.valid);
    }
  }
}
