#include "data/tokenizer/tokenizer.h"

#include <omp.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "data/build/tokenizer_train.h"
#include "data/text/unicode.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_words.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/sanitized.h"

using namespace trireme;

namespace {

// Random bytes; `spread` small keeps to a few characters, so that merges apply.
std::string random_bytes(uint64_t key, size_t length, uint64_t spread) {
  std::string bytes;
  for (size_t i = 0; i < length; ++i) bytes += static_cast<char>((spread < 256 ? 'a' : 0) + philox64(key, i) % spread);
  return bytes;
}

Bpe train(const Scratch& scratch, const std::string& text, int64_t vocab) {
  write_text(scratch / "text", text);
  return train_tokenizer({.inputs = {scratch / "text"}, .vocab = vocab}, [](const TokenizerProgress&) {}).bpe;
}

std::vector<std::string> words_of(std::string_view text) {
  const WordPatterns gpt2({patterns::gpt2});
  WordCutter cutter(gpt2);
  cutter.start(text);
  std::vector<std::string> words;
  for (std::string_view word; cutter.next(word);) words.emplace_back(word);
  return words;
}

// The definition: join the pair of the lowest rank everywhere, left to right, until none is left.
std::vector<int32_t> merge_plainly(const Bpe& bpe, const std::string& word) {
  std::vector<int32_t> tokens;
  for (const char c : word) tokens.push_back(static_cast<uint8_t>(c));
  const auto token_of = [&](const std::string& bytes) {
    return static_cast<int32_t>(std::find(bpe.tokens.begin(), bpe.tokens.end(), bytes) - bpe.tokens.begin());
  };
  for (bool again = true; again;) {
    again = false;
    for (const auto& [left, right] : bpe.merges) {
      for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] = token_of(bpe.tokens[static_cast<size_t>(left)] + bpe.tokens[static_cast<size_t>(right)]);
        tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(i) + 1);
        again = true;
      }
      if (again) break;
    }
  }
  return tokens;
}

const std::string kSample =
    "the cat sat on the mat, the cat's hat was on the mat; they're 12 cats and we'll count 1234567 of them\n\n\tint main() {\n"
    "  return 0;\n}\n\xc3\xa9t\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x9a\xa3 caf\xc3\xa9 the the the cat cat\n";

}  // namespace

TEST_CASE("text is cut into GPT-2's words") {
  using Words = std::vector<std::string>;
  CHECK(words_of("").empty());
  CHECK(words_of("Hello world") == Words{"Hello", " world"});
  CHECK(words_of("we're 42 and  spaced") == Words{"we", "'re", " 42", " and", " ", " spaced"});
  CHECK(words_of("a\n\n  b \n") == Words{"a", "\n\n ", " b", " \n"});
  CHECK(words_of("x!?\ty") == Words{"x", "!?", "\t", "y"});
  CHECK(words_of("a\xc2\xa0\xe3\x80\x80z") == Words{"a", "\xc2\xa0", "\xe3\x80\x80", "z"});
  CHECK(words_of("ab\xff\xfe cd\xc3") == Words{"ab", "\xff", "\xfe", " cd", "\xc3"});
  CHECK(words_of("a\xe1\xa0\x8e") == Words{"a", "\xe1\xa0\x8e"});
}

TEST_CASE("UTF-8 is distinguished from what only looks like it") {
  CHECK(utf8_prefix("plain ascii text, long") == 22);
  CHECK(utf8_prefix("12345678\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x9a\xa3") == 17);
  for (const std::string bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe4\xbd", "\xc3", "\xc3\x28"})
    CHECK(utf8_prefix("ok" + bad) == 2);
}

TEST_CASE("a text is cut where its words are not changed") {
  const std::string text = kSample + kSample + "  \n \n" + kSample;
  int cuts = 0;
  for (size_t limit = 20; limit < text.size(); ++limit) {
    const size_t at = last_cut_between_words(text, limit);
    REQUIRE(at <= limit);
    if (at == 0) continue;
    ++cuts;
    auto parts = words_of(std::string_view(text).substr(0, at));
    const auto rest = words_of(std::string_view(text).substr(at));
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == words_of(text));
  }
  CHECK(cuts > 100);
  CHECK(last_cut_between_words("a text of one line alone", 20) == 0);
  CHECK(start_of_character("\xe4\xbd\xa0\xe5\xa5\xbd", 4) == 3);
}

TEST_CASE("decode gives back any bytes that were encoded") {
  const Scratch scratch;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_bpe_tokenizer(train(scratch, kSample, 300)));
  tokenizers.push_back(make_bpe_tokenizer(train(scratch, random_bytes(1, 3000, 3), 290)));
  for (const auto& tokenizer : tokenizers) {
    for (uint64_t key = 0; key < 200; ++key) {
      const std::string bytes = random_bytes(key, key, key % 2 == 0 ? 256 : 3);
      CHECK(tokenizer->decode(tokenizer->encode(bytes)) == bytes);
    }
    CHECK(tokenizer->decode(tokenizer->encode(kSample)) == kSample);
    CHECK(tokenizer->decode(std::vector<int32_t>{'a', tokenizer->end_of_document(), 'b'}) == "ab");
    const std::vector<int32_t> ends = tokenizer->encode("<|endoftext|>");
    CHECK(std::count(ends.begin(), ends.end(), tokenizer->end_of_document()) == 0);
    CHECK_THROWS_WITH(tokenizer->decode(std::vector<int32_t>{tokenizer->vocab_size()}), ContainsSubstring("not in the vocabulary"));
    CHECK_THROWS_AS(tokenizer->decode(std::vector<int32_t>{-1}), DataError);
  }
}

TEST_CASE("merging with a queue agrees with the definition") {
  const Scratch scratch;
  const Bpe bpe = train(scratch, random_bytes(5, 4000, 3) + " " + kSample, 340);
  const auto tokenizer = make_bpe_tokenizer(bpe);
  for (uint64_t key = 0; key < 60; ++key) {
    const std::string word = random_bytes(key + 1000, 1 + key, 3);
    CHECK(tokenizer->encode(word) == merge_plainly(bpe, word));
  }
}

TEST_CASE("a trained tokenizer merges the most frequent pairs first, ties to the lower ids") {
  const Scratch scratch;
  const Bpe bpe = train(scratch, "ab ab ab cd cd cd xyz", 262);
  REQUIRE(bpe.merges.size() == 4);  // " a" 2, "ab" 3, " c" 3, "cd" 3: the pair ("ab") stands in "ab" and " ab"
  CHECK(bpe.merges[0] == std::pair<int32_t, int32_t>(' ', 'c'));
  CHECK(bpe.merges[1] == std::pair<int32_t, int32_t>('a', 'b'));
  CHECK(bpe.merges[2] == std::pair<int32_t, int32_t>(256, 'd'));
  CHECK(bpe.merges[3] == std::pair<int32_t, int32_t>(' ', 257));
  CHECK(bpe.tokens[259] == " ab");
  CHECK(bpe.end_of_document == 260);
  CHECK(bpe.tokens.size() == 261);
  CHECK(train(scratch, "abcdefg", 1000).tokens.size() == 257);
}

TEST_CASE("training counts every merge as the definition does") {
  const Scratch scratch;
  const std::string text = random_bytes(9, 600, 2);
  const Bpe bpe = train(scratch, text, 300);
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  for (const auto& merge : bpe.merges) {
    std::map<std::pair<int32_t, int32_t>, int> counts;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) ++counts[{tokens[i], tokens[i + 1]}];
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it)
      if (it->second > best->second) best = it;
    REQUIRE(best->first == merge);
    const std::string made = bpe.tokens[static_cast<size_t>(merge.first)] + bpe.tokens[static_cast<size_t>(merge.second)];
    const auto id = static_cast<int32_t>(std::find(bpe.tokens.begin(), bpe.tokens.end(), made) - bpe.tokens.begin());
    std::vector<int32_t> shorter;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool joined = i + 1 < tokens.size() && tokens[i] == merge.first && tokens[i + 1] == merge.second;
      shorter.push_back(joined ? id : tokens[i]);
      if (joined) ++i;
    }
    tokens = shorter;
  }
  CHECK(make_bpe_tokenizer(bpe)->encode(text) == tokens);
}

TEST_CASE("the trained vocabulary does not depend on the number of threads") {
  const Scratch scratch;
  std::string lines;
  for (uint64_t i = 0; i < 300; ++i) lines += Json{{"text", random_bytes(i, 80, 20) + " " + kSample}}.dump() + "\n";
  write_text(scratch / "a.jsonl", lines);
  const auto train_with = [&](int threads) {
    omp_set_num_threads(threads);
    const auto result = train_tokenizer({.inputs = {scratch / "a.jsonl"}, .vocab = 500}, [](const TokenizerProgress&) {});
    CHECK(result.documents == 300);
    return tokenizer_json(result.bpe);
  };
  const std::string one = train_with(1);
  CHECK(one == train_with(3));
  omp_set_num_threads(2);
}

TEST_CASE("a tokenizer is the same after it was saved and read") {
  const Scratch scratch;
  const Bpe bpe = train(scratch, kSample, 320);
  save_tokenizer_json(bpe, scratch / "tokenizer.json");
  const auto before = make_bpe_tokenizer(bpe), after = open_tokenizer(scratch / "tokenizer.json");
  CHECK(before->fingerprint() == after->fingerprint());
  CHECK(before->vocab_size() == after->vocab_size());
  CHECK(before->end_of_document() == after->end_of_document());
  CHECK(before->encode(kSample) == after->encode(kSample));
  Bpe fewer = bpe;
  fewer.merges.pop_back();
  CHECK(make_bpe_tokenizer(fewer)->fingerprint() != before->fingerprint());
  CHECK(open_tokenizer("bytes")->fingerprint() == "bytes");
}

TEST_CASE("several threads encode with one tokenizer at once") {
  const Scratch scratch;
  const auto tokenizer = make_bpe_tokenizer(train(scratch, kSample, 320));
  const std::vector<int32_t> expected = tokenizer->encode(kSample);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) wrong[t] += tokenizer->encode(kSample) == expected ? 0 : 1;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("long words are merged in reasonable time") {
  const Scratch scratch;
  const auto tokenizer = make_bpe_tokenizer(train(scratch, random_bytes(5, 4000, 3), 300));
  const std::string word = random_bytes(77, 300000, 3);
  CHECK(tokenizer->decode(tokenizer->encode(word)) == word);
}

TEST_CASE("Hugging Face's tokenizers and tiktoken give the same tokens, by each published pattern") {
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";
  const Scratch scratch;
  for (const auto& [name, file] : {std::pair("gpt2", "gpt2.json"), std::pair("llama3", "llama3.json"),
                                   std::pair("qwen2", "qwen2.json"), std::pair("r50k", "r50k.tiktoken@r50k"),
                                   std::pair("cl100k", "cl100k.tiktoken@cl100k"), std::pair("o200k", "o200k.tiktoken@o200k")}) {
    const auto tokenizer = open_tokenizer(goldens + file);
    const auto cases = Json::parse(read_text(goldens + name + "_cases.json"));
    REQUIRE(cases.size() > 100);
    for (const auto& entry : cases) {
      const auto text = entry["text"].get<std::string>();
      INFO(name << ": " << text);
      CHECK(tokenizer->encode(text) == entry["tokens"].get<std::vector<int32_t>>());
      std::string composed;
      const bool changes = name == std::string("qwen2") && compose(text, composed);
      CHECK(tokenizer->decode(tokenizer->encode(text)) == (changes ? composed : text));
    }
  }
}

TEST_CASE("a vocabulary in Hugging Face's format reads back as itself, with its patterns, normal form and added tokens") {
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";
  for (const std::string name : {"gpt2", "llama3", "qwen2"}) {
    const Bpe bpe = read_tokenizer_json(goldens + name + ".json"), again = parse_tokenizer_json(tokenizer_json(bpe), name);
    CHECK(make_bpe_tokenizer(again)->fingerprint() == make_bpe_tokenizer(bpe)->fingerprint());
    CHECK(again.patterns == bpe.patterns);
    CHECK(again.compose == (name == "qwen2"));
    CHECK(again.whole_words == (name == "llama3"));
    CHECK(again.added.size() == (name == "qwen2" ? 3 : 0));
  }
}

TEST_CASE("damaged ranks are refused with file and line") {
  const auto refusal = [](const std::string& ranks, const std::string& encoding) {
    try {
      parse_tiktoken(ranks, "r.tiktoken", encoding);
      return std::string("accepted");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  const std::string good = read_text(std::string(TRIREME_SOURCE) + "/test/data/goldens/cl100k.tiktoken");
  CHECK(refusal(good, "cl100k") == "accepted");
  CHECK_THAT(refusal(good, ""), ContainsSubstring("480 ranks are of no published encoding") && ContainsSubstring("cl100k"));
  CHECK_THAT(refusal(good, "gpt5"), ContainsSubstring("there is no encoding 'gpt5'"));
  CHECK_THAT(refusal(good + "YWJj", "cl100k"), ContainsSubstring("r.tiktoken:481: is not a token in base64 and its rank"));
  CHECK_THAT(refusal(good + "YW?j 500\n", "cl100k"), ContainsSubstring("r.tiktoken:481"));
  CHECK_THAT(refusal(good + "YWJj -5\n", "cl100k"), ContainsSubstring("r.tiktoken:481"));
  CHECK_THAT(refusal(good + "/////w== 17\n", "cl100k"), ContainsSubstring("a second token of rank 17"));
  CHECK_THAT(refusal(good + "AA== 500\n", "cl100k"), ContainsSubstring("the token of rank 0 again"));
  CHECK_THAT(refusal(good + "/////w== 9000000\n", "cl100k"), ContainsSubstring("too many gaps"));
}

TEST_CASE("texts that are one long run are cut by each pattern, in time and whole") {
  const auto cutting = GENERATE(Cutting::fastest, Cutting::regex);
  for (const std::string& pattern : {patterns::gpt2, patterns::cl100k, patterns::o200k, patterns::llama3, patterns::qwen2}) {
    const WordPatterns compiled({pattern}, cutting);
    WordCutter cutter(compiled);
    for (const std::string unit : {"A", " ", "\n", "1", "'s", "\xe4\xbd\xa0", "!", " \n", "\xcc\x81"}) {
      std::string text;
      while (text.size() < (kSanitized ? 1 : 4) << 20) text += unit;
      cutter.start(text);
      size_t bytes = 0;
      for (std::string_view word; cutter.next(word);) bytes += word.size();
      CHECK(bytes == text.size());
    }
  }
}

TEST_CASE("text is composed into normal form C, marks in their order, in time") {
  const auto composed = [](const std::string& text) {
    std::string out;
    return compose(text, out) ? out : text;
  };
  CHECK(composed("plain \xc3\xa9") == "plain \xc3\xa9");
  CHECK(composed("e\xcc\x81") == "\xc3\xa9");
  CHECK(composed("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8") == "\xea\xb0\x81");
  CHECK(composed("\xe2\x84\xab") == "\xc3\x85");
  CHECK(composed("q\xcc\x87\xcc\xa3") == "q\xcc\xa3\xcc\x87");
  CHECK(composed("\xcc\x81\xff"
                 "e\xcc\x81") == "\xcc\x81\xff\xc3\xa9");
  std::string marks = "e", sorted;
  for (int i = 0; i < 200000; ++i) marks += "\xcc\x81";
  for (int i = 0; i < 200000; ++i) marks += "\xcc\x96", sorted += "\xcc\x96";
  CHECK(composed(marks).size() == marks.size() - 1);  // the first acute joins the e
  CHECK(composed(marks).substr(2, sorted.size()) == sorted);
}

TEST_CASE("several patterns cut one after the other, and what lies between matches is a word") {
  const auto words_by = [](const std::vector<std::string>& patterns, std::string_view text) {
    const WordPatterns compiled(patterns);
    WordCutter cutter(compiled);
    cutter.start(text);
    std::vector<std::string> words;
    for (std::string_view word; cutter.next(word);) words.emplace_back(word);
    return words;
  };
  using Words = std::vector<std::string>;
  CHECK(words_by({R"(\p{N}{1,3})", R"([a-z]+)"},
                 "ab1234cd ef\xff"
                 "12") == Words{"ab", "123", "4", "cd", " ", "ef", "\xff", "12"});
  CHECK(words_by({}, "one text") == Words{"one text"});
  CHECK(words_by({"x*"}, "axxb") == Words{"a", "xx", "b"});
  CHECK(words_by({"x*"}, "ab") == Words{"a", "b"});
  CHECK(words_by({R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}, "ab1234567") == Words{"ab", "1", "234", "567"});
  CHECK(words_by({R"(\p{Han}+)"}, "\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82") == Words{"\xe4\xb8\x96\xe7\x95\x8c", "\xe3\x80\x82"});
  for (const std::string refused : {"[a[b]]", "[a&&b]", "^a", "a$", "a{1,3}+", R"(\w+)", "(?:"})
    CHECK_THROWS_AS(WordPatterns({refused}), DataError);
}
