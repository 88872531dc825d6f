// Builds of shards that are killed, or read standard input: what is made in the end is what one build makes.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/build/build.h"
#include "data/build/build_journal.h"
#include "data/loader/corpus.h"
#include "test/catch.h"
#include "test/data/packed.h"
#include "test/data/scratch.h"

using namespace trireme;
namespace fs = std::filesystem;

namespace {

const auto kNobody = [](const BuildProgress&) {};

// Every file of a directory, also those whose names begin with a dot.
std::map<std::string, std::string> contents_of(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) files[entry.path().filename()] = read_text(entry.path());
  return files;
}

// Text, JSON lines, some of them invalid, and a file that is not text.
void write_inputs(const Scratch& scratch) {
  std::mt19937 chance(11);
  fs::create_directories(scratch / "in");
  for (int file = 0; file < 4; ++file) {
    std::string text, lines = "{\"text\": \xe4\xbd}\n";  // the report about it is kept, too
    while (text.size() < 750'000) text += "int value_" + std::to_string(chance()) + " = 42;\n";
    while (lines.size() < 750'000) {
      lines += Json{{"text", "line " + std::to_string(chance()) + std::string(chance() % 300, 'x')}}.dump() + "\n";
      if (chance() % 1250 == 0) lines += "{\"text\": 3}\n";
    }
    write_text(scratch / ("in/" + std::to_string(file) + "a.txt"), text);
    write_text(scratch / ("in/" + std::to_string(file) + "b.jsonl"), lines);
  }
  write_text(scratch / "in/2bad.txt", "\xff\xfe");
}

// Lines of words and other scripts, some of them bad, in files packed both ways.
void write_packed_inputs(const Scratch& scratch) {
  std::mt19937 chance(13);
  const std::array<std::string, 8> words{"the ",     "oars ",        "row ",       "caf\u00e9 ",
                                         "e\u0301 ", "\u4f60\u597d", "\U0001f600", "1234\n\n  "};
  fs::create_directories(scratch / "in");
  for (int file = 0; file < 4; ++file) {
    std::string lines;
    while (lines.size() < 250'000) {
      std::string text;
      for (size_t n = chance() % 200; n > 0; --n) text += words[chance() % words.size()];
      lines += Json{{"text", text}}.dump() + "\n";
      if (chance() % 125 == 0) lines += "{\"text\": 3}\n";
    }
    write_text(scratch / ("in/" + std::to_string(file) + ".jsonl.gz"), gzipped(lines));
    write_text(scratch / ("in/" + std::to_string(file) + ".jsonl.zst"), zstd_packed(lines.substr(lines.size() / 2)));
  }
}

BuildOptions options_for(const Scratch& scratch, const std::string& output) {
  return {.inputs = {scratch / "in"},
          .validation_inputs = {},
          .validation_fraction = 0.2,
          .output = scratch / output,
          .tokens_per_shard = 175'001,
          .keep_every = 0,
          .batch_bytes = 1 << 20};  // six or so: each is a state to continue from
}

void check_same(const BuildSummary& a, const BuildSummary& b) {
  for (const auto& [one, other] : {std::pair(&a.train, &b.train), {&a.validation, &b.validation}}) {
    CHECK(one->shards.size() == other->shards.size());
    CHECK(one->documents == other->documents);
    CHECK(one->tokens == other->tokens);
    CHECK(one->text_bytes == other->text_bytes);
    CHECK(one->trained_tokens == other->trained_tokens);
    CHECK(one->rows == other->rows);
    CHECK(one->filling == other->filling);
    CHECK(one->cut_documents == other->cut_documents);
  }
  CHECK(a.skipped == b.skipped);
  CHECK(a.problems == b.problems);
}

// Builds in a process of its own, which is killed after so many seconds. Whether that was before its end.
bool build_and_kill(const BuildOptions& options, const Tokenizer& tokenizer, double seconds) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      build_shards(options, tokenizer, kNobody);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0));
  const bool whole = fs::exists(options.output + "/train-00000.h5") && !fs::exists(options.output + "/.renaming.json");
  return WIFSIGNALED(status) && !whole;
}

// Kills a build until enough builds were killed, and enough of them left a state to continue from.
// The last one must make the same shards as an undisturbed build.
void check_killed(const Scratch& scratch, const Tokenizer& tokenizer, const BuildOptions& left_alone, int most_kills,
                  int most_resumed) {
  const auto begin = std::chrono::steady_clock::now();
  const BuildSummary whole = build_shards(left_alone, tokenizer, kNobody);
  double takes = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(whole.skipped > 1);
  CHECK(whole.train.shards.size() > 20);
  const auto expected = contents_of(left_alone.output);
  CHECK(expected.size() == whole.train.shards.size() + whole.validation.shards.size());

  BuildOptions options = left_alone;
  options.output = scratch / "killed";
  std::mt19937 chance(5);
  int kills = 0, resumed = 0, renaming = 0, whole_again = 0;
  while (kills < most_kills || resumed < most_resumed) {
    REQUIRE(kills + whole_again < 300);
    const double earliest = kills % 2 == 0 ? 0.0 : 0.7;  // every other one late, when there is a state to continue from
    const double seconds = takes * std::uniform_real_distribution(earliest, 1.0)(chance);
    if (build_and_kill(options, tokenizer, seconds)) {
      ++kills;
      takes *= 1.05;  // follows a machine that was faster, or slower, when the first one was timed
      resumed += fs::exists(scratch / "killed/.build.json") ? 1 : 0;
      renaming += fs::exists(scratch / "killed/.renaming.json") ? 1 : 0;
    } else {  // it was through: from the beginning
      CHECK(contents_of(scratch / "killed") == expected);
      ++whole_again;
      takes *= 0.8;
      fs::remove_all(scratch / "killed");
    }
  }
  const BuildSummary summary = build_shards(options, tokenizer, kNobody);
  WARN(kills << " kills of a build of some " << takes << " s, " << resumed << " of them with something to go on from, " << renaming
             << " while shards got their names; " << whole_again << " were through before");
  check_same(summary, whole);
  CHECK(contents_of(scratch / "killed") == expected);
}

}  // namespace

TEST_CASE("a build that is killed again and again continues, and makes the shards of an undisturbed one", "[unsanitized]") {
  const Scratch scratch;
  write_inputs(scratch);
  check_killed(scratch, *make_byte_tokenizer(), options_for(scratch, "whole"), 20, 5);
}

TEST_CASE("so does one of packed lines by byte-pair encoding, into rows", "[unsanitized]") {
  const Scratch scratch;
  write_packed_inputs(scratch);
  const auto tokenizer = open_tokenizer(std::string(TRIREME_SOURCE) + "/test/data/goldens/qwen2.json");
  BuildOptions options = options_for(scratch, "whole");
  options.tokens_per_shard = 12'501;
  options.batch_bytes = 256 << 10;
  options.pack_context = 256;
  check_killed(scratch, *tokenizer, options, 10, 3);
}

TEST_CASE("a build continues from each of its states, and not from one of other inputs or options", "[unsanitized]") {
  const Scratch scratch;
  write_inputs(scratch);
  const auto bytes = make_byte_tokenizer();
  struct Stop {};
  for (int n = 0; n < 10; ++n) {
    const int calls = 1 + std::min(n / 2, 3);
    const int64_t row = n % 2 * 300;  // packed or not
    INFO("stopped at call " << calls << ", rows of " << row);
    BuildOptions options = options_for(scratch, "whole");
    options.pack_context = row;
    options.replace = true;
    const BuildSummary whole = build_shards(options, *bytes, kNobody);
    options.output = scratch / ("stopped" + std::to_string(n));
    int left = calls;
    int64_t last = 0;
    const auto stop = [&](const BuildProgress& progress) {
      last = progress.bytes_read;
      if (--left == 0) throw Stop();
    };
    CHECK_THROWS_AS(build_shards(options, *bytes, stop), Stop);
    bool went_on = false;
    std::string reason;
    const auto restarted = [&](const std::string& message) { reason = message; };
    const std::string unfinished = options.output + ": the unfinished build there was begun with another ";
    int64_t first = -1;
    const auto progress = [&](const BuildProgress& now) { first = first < 0 ? now.bytes_read : first; };
    if (n == 8) {
      BuildOptions other = options;
      other.tokens_per_shard = 175'002;
      build_shards(
          other, *bytes, kNobody, [&] { went_on = true; }, restarted);
      CHECK_FALSE(went_on);
      CHECK(reason == unfinished + "--shard-tokens: starting again from the beginning");
      continue;
    }
    if (n == 9) fs::last_write_time(scratch / "in/3b.jsonl", fs::file_time_type::clock::now() + std::chrono::seconds(9));
    check_same(build_shards(
                   options, *bytes, progress, [&] { went_on = true; }, restarted),
               whole);
    CHECK(went_on == (n != 9));
    const std::string newer = " (" + scratch / "in/3b.jsonl" + " is newer than it): starting again from the beginning";
    CHECK(reason == (n == 9 ? unfinished + "size or time of an input file" + newer : ""));
    if (went_on) CHECK(first > last);
    CHECK(contents_of(options.output) == contents_of(scratch / "whole"));
  }
}

TEST_CASE(
    "a build whose state lacks a file begins anew, one whose output lies among its inputs goes on, and two at once are refused",
    "[unsanitized]") {
  const Scratch scratch;
  write_inputs(scratch);
  const auto bytes = make_byte_tokenizer();
  struct Stop {};
  const auto stop = [left = 3](const BuildProgress&) mutable {
    if (--left == 0) throw Stop();
  };
  BuildOptions options = options_for(scratch, "in/shards");
  const BuildSummary whole = build_shards(options_for(scratch, "whole"), *bytes, kNobody);
  for (const std::string lost : {"", "train-00000.h5.tmp", "train-partial-3.h5.tmp"}) {
    INFO("without " << lost);
    fs::remove_all(options.output);
    CHECK_THROWS_AS(build_shards(options, *bytes, stop), Stop);
    if (!lost.empty()) REQUIRE(fs::remove(options.output + "/" + lost));
    bool went_on = false;
    std::string reason;
    const auto restarted = [&](const std::string& message) { reason = message; };
    check_same(build_shards(
                   options, *bytes, kNobody, [&] { went_on = true; }, restarted),
               whole);
    CHECK(went_on == lost.empty());
    CHECK((reason.find("lacks some of what it had written") != std::string::npos) == !lost.empty());
    CHECK(contents_of(options.output) == contents_of(scratch / "whole"));
  }
  const DirectoryLock lock(options.output);
  options.replace = true;
  CHECK_THROWS_WITH(build_shards(options, *bytes, kNobody), ContainsSubstring("another process is building shards there"));
}

TEST_CASE("a state that cannot be saved leaves the state before, from which the same build continues", "[unsanitized]") {
  const Scratch scratch;
  write_inputs(scratch);
  const auto bytes = make_byte_tokenizer();
  const BuildSummary whole = build_shards(options_for(scratch, "whole"), *bytes, kNobody);
  for (const std::string split : {"train", "validation"}) {
    const BuildOptions options = options_for(scratch, split);
    const std::string obstacle = options.output + "/" + split + "-partial-2.h5.tmp";  // in the place of the second state's file
    const auto obstruct = [&](const BuildProgress&) { fs::create_directory(obstacle); };
    CHECK_THROWS_AS(build_shards(options, *bytes, obstruct), DataError);
    CHECK(fs::exists(options.output + "/" + split + "-partial-1.h5.tmp"));
    fs::remove(obstacle);
    bool resumed = false;
    check_same(build_shards(options, *bytes, kNobody, [&] { resumed = true; }), whole);
    CHECK(resumed);
    CHECK(contents_of(options.output) == contents_of(scratch / "whole"));
  }
}

TEST_CASE("shards that are half renamed are not a corpus, and the same build continues with their names", "[unsanitized]") {
  const Scratch scratch;
  write_inputs(scratch);
  const auto bytes = make_byte_tokenizer();
  const BuildSummary whole = build_shards(options_for(scratch, "whole"), *bytes, kNobody);
  const auto shards = contents_of(scratch / "whole");
  BuildOptions others = options_for(scratch, "out");
  others.tokens_per_shard = 75'000;
  BuildJournal journal;
  struct Stop {};
  CHECK_THROWS_AS(build_shards(options_for(scratch, "stopped"), *bytes, [](const BuildProgress&) { throw Stop(); }), Stop);
  journal = BuildJournal::load(scratch / "stopped").value();
  journal.problems = {.count = whole.skipped, .first = whole.problems};
  journal.splits = {{.split = "train", .shards = std::ssize(whole.train.shards), .added = whole.train},
                    {.split = "validation", .shards = std::ssize(whole.validation.shards), .added = whole.validation}};
  for (const size_t renamed : {size_t{0}, size_t{1}, shards.size() - 1, shards.size()}) {
    INFO(renamed << " of " << shards.size() << " renamed");
    fs::remove_all(scratch / "out");
    build_shards(others, *bytes, kNobody);
    size_t i = 0;
    for (const auto& [name, bytes_of_it] : shards)
      write_text(scratch / ("out/" + name + (i++ < renamed ? "" : ".tmp")), bytes_of_it);
    journal.save(scratch / "out");
    fs::rename(scratch / "out/.build.json", scratch / "out/.renaming.json");
    CHECK_THROWS_WITH(Corpus({scratch / "out/train-*.h5"}, 10, false), ContainsSubstring("half renamed"));
    check_same(build_shards(options_for(scratch, "out"), *bytes, kNobody), whole);
    CHECK(contents_of(scratch / "out") == shards);
  }
}

TEST_CASE("standard input gives the documents of a file of the same bytes") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 30000; ++i) lines += Json{{"text", "document " + std::to_string(i * 7919)}}.dump() + "\n";
  write_text(scratch / "a.jsonl", lines);
  write_text(scratch / "a.txt", lines);
  const auto bytes = make_byte_tokenizer();
  const int before = dup(0);
  for (const std::string kind : {".jsonl", ".txt"}) {
    INFO(kind);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::jthread writer([&] {
      for (size_t at = 0; at < lines.size();)
        at += static_cast<size_t>(std::max<ssize_t>(0, write(ends[1], &lines[at], std::min<size_t>(lines.size() - at, 7000))));
      close(ends[1]);
    });
    dup2(ends[0], 0);
    close(ends[0]);
    BuildOptions options{.inputs = {"-"}, .validation_inputs = {}, .output = scratch / ("piped" + kind), .keep_every = 0};
    options.documents.stdin_name = scratch / ("a" + kind);  // by which shards name the sources of documents
    const BuildSummary piped = build_shards(options, *bytes, kNobody);
    options.inputs = {scratch / ("a" + kind)};
    options.output = scratch / ("read" + kind);
    check_same(piped, build_shards(options, *bytes, kNobody));
    CHECK(contents_of(scratch / ("piped" + kind)) == contents_of(scratch / ("read" + kind)));
  }
  dup2(before, 0);
  close(before);
}
