// trireme init: the config that it writes trains on the text that it was given, by the commands that it prints.
#include <filesystem>
#include <sstream>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "train/config/config.h"
#include "train/config/starter_config.h"

namespace trireme {
namespace {

std::string many_words(int lines, int first) {
  std::string words;
  for (int i = 0; i < lines; ++i) words += "line " + std::to_string(100 + (first + i * 7919) % 900) + " of many\n";
  return words;
}

}  // namespace

TEST_CASE("every size of a starter config can be read, and grows with the text") {
  int64_t layers = 0;
  for (const auto& [bytes, vocab] :
       std::vector<std::pair<int64_t, int64_t>>{{1000, 4096}, {10'000'000, 4096}, {100'000'000, 16384}, {10'000'000'000, 32768}}) {
    const StarterSize size = starter_size(bytes);
    const RunConfig config = parse_config("starter", starter_yaml("some/dir with $x/", size, bytes), {}, Purpose::train);
    CHECK(config.notes.empty());
    CHECK(config.train.name == "dir with $x");
    CHECK(config.data.tokenizer == "some/dir with $x//tokenizer.json");
    CHECK(config.model.vocab == vocab);
    CHECK(config.model.layers * config.model.width > layers);
    CHECK(config.train.steps >= 100);
    CHECK(parse_starter_size(std::string(name_of(size))) == size);
    layers = config.model.layers * config.model.width;
  }
}

TEST_CASE("the commands that init prints train a model on the text, and it overwrites nothing") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "texts");
  for (int i = 0; i < 4; ++i) write_text(scratch / ("texts/" + std::to_string(i) + ".txt"), many_words(300, i));
  const Ended made = run_trireme(scratch.path(), {"init", "mine", "--text", "texts/"});
  INFO(made.err);
  REQUIRE(made.code == 0);
  CHECK(made.out ==
        "mine/config.yaml: tiny, 1.38M parameters for 19.9 KiB of text, 100 steps\n"
        "next:\n"
        "  trireme tokenizer train texts/ --vocab 4096 --output mine/tokenizer.json\n"
        "  trireme data build texts/ --tokenizer mine/tokenizer.json --validation 0.05 --output mine/corpus\n"
        "  trireme train mine/config.yaml\n"
        "  trireme sample runs/mine --prompt \"Once upon a time\"\n");
  std::istringstream lines(made.out.substr(made.out.find("next:\n") + 6));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word.starts_with('"') ? "a" : word);
    REQUIRE(words.at(0) == "trireme");
    words.erase(words.begin());
    if (words.at(0) == "sample") words.resize(4);
    for (const char* more : {"--set", "train.steps=2", "--set", "train.batch=1", "--set", "kernels.threads=1"})
      if (words.at(0) == "train") words.emplace_back(more);
    const Ended ended = run_trireme(scratch.path(), words);
    INFO(line << "\n" << ended.err);
    CHECK(ended.code == 0);
  }
  const Ended again = run_trireme(scratch.path(), {"init", "mine", "--text", "texts/"});
  CHECK(again.code == 2);
  CHECK(again.err == "mine/config.yaml: exists already; remove it, or choose another directory\n");
  CHECK(run_trireme(scratch.path(), {"init", "other", "--text", "none/"}).err == "none/: no such file or directory\n");
  CHECK(run_trireme(scratch.path(), {"init", "other", "--text", "-"}).err ==
        "--text -: standard input cannot be measured; name files\n");
}

}  // namespace trireme
