// Hostile files of every kind, made by a seeded generator, given to the program that reads them: it ends with a coded error or
// accepts, within a second of processor time and 200 MB, and its messages hold no control characters.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "test/catch.h"
#include "test/data/scratch.h"

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Outcome {
  int code = 0, signal = 0;
  double seconds = 0, mebibytes = 0;
  std::string errors;
};

Outcome run_program(const std::string& directory, const Words& words) {
  std::vector<std::string> all{std::string(TRIREME_BUILD) + "/trireme"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string errors = directory + "/errors";
  const pid_t child = fork();
  if (child == 0) {
    const int none = open("/dev/null", O_RDWR), to = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(none, 0), dup2(none, 1), dup2(to, 2);
    const rlimit no_core{0, 0}, processor{20, 20};
    setrlimit(RLIMIT_CORE, &no_core), setrlimit(RLIMIT_CPU, &processor);
    alarm(120);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
          .mebibytes = static_cast<double>(used.ru_maxrss) / 1024,
          .errors = read_text(errors)};
}

class Hostile {
 public:
  explicit Hostile(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t count) { return random_() % count; }
  std::string one_of(const Words& words) { return words[below(words.size())]; }

  // A JSON value that tries one limit.
  std::string value() {
    const auto repeated = [](const std::string& unit, size_t count) {
      std::string text;
      for (size_t i = 0; i < count; ++i) text += unit;
      return text;
    };
    switch (below(10)) {
      case 0:
        return repeated("[", 50000) + repeated("]", 50000);
      case 1:
        return repeated("{\"a\":", 100) + "1" + repeated("}", 100);
      case 2:
        return "[" + repeated("[],", 300000) + "[]]";
      case 3:
        return "\"" + std::string(2000000, 'x') + "\"";
      case 4:
        return R"("a\u001b[2J\u202e\u0007\n")";
      case 5:
        return one_of({"1e999", "-1", "18446744073709551615", "1e-400", "9999999999999999999999", "0.5"});
      case 6:
        return one_of({"null", "true", "[]", "{}", "\"\"", "\"\\ud800\"", "nul", ""});
      case 7:
        return "{" + repeated("\"k\":0,", 100000) + "\"z\":0}";
      case 8:
        return std::string(100000, '9');
      default:
        return "\"" + bytes(30) + "\"";
    }
  }

  std::string bytes(size_t count) {
    std::string all(count, '\0');
    for (char& c : all) c = static_cast<char>(random_());
    return all;
  }

  // A good text with some of its values replaced, bytes changed, or its end cut off.
  std::string spoilt(std::string text) {
    switch (below(3)) {
      case 0:
        text.resize(below(text.size()));
        break;
      case 1:
        for (int i = 0; i < 3; ++i) text[below(text.size())] = static_cast<char>(random_());
        break;
      default: {
        const size_t colon = text.find(':', below(text.size()));
        const size_t end = text.find_first_of(",}", colon);
        if (end != std::string::npos) text.replace(colon + 1, end - colon - 1, value());
      }
    }
    return text;
  }

  std::string pattern() {
    return one_of({"(a|a)*b|(a|aa)+c", "(\\\\p{L}+)*1", "(x+x+)+y", "((((((((((a{1,99}){1,99}){1,99}", "(?:", "(?R)",
                   "(a)\\\\1+\\\\1*b", "\\u0000*", "(?:\\\\s|\\\\s\\\\s)+x", "[[:alpha:]]", std::string(20000, '('), "(?<=a+)b",
                   "(?:a|a|a|a){30}c"});
  }

 private:
  std::mt19937_64 random_;
};

const std::string kGoldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";
const std::string kConfig =
    R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":1,"intermediate_size":64,)"
    R"("vocab_size":257,)"
    R"("max_position_embeddings":32,"rope_scaling":{"rope_type":"default"},"eos_token_id":256})";
const std::string kHeader = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string safetensors(const std::string& header) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(8, 'x');
}

// Makes the file of a kind in the directory, and returns the command that reads it.
using Make = std::function<Words(Hostile&, const std::string& directory)>;

Words model_sample(const std::string& directory) {
  return {"sample", directory + "/m", "--prompt", "hi", "--tokens", "1", "--set", "data.tokenizer=bytes"};
}

std::map<std::string, Make> kinds() {
  const auto model = [](const std::string& directory, const std::string& name, const std::string& text) {
    fs::create_directories(directory + "/m");
    write_text(directory + "/m/config.json", kConfig);
    write_text(directory + "/m/model.safetensors", safetensors(kHeader));
    fs::remove(directory + "/m/" + name);
    write_text(directory + "/m/" + name, text);
  };
  std::map<std::string, Make> all;
  all["tokenizer.json"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/tokenizer.json", h.spoilt(read_text(kGoldens + "gpt2.json")));
    return Words{"tokenizer", "encode", d + "/tokenizer.json", "Where are 12 rowers?"};
  };
  all["pattern"] = [](Hostile& h, const std::string& d) {
    const std::string good = read_text(kGoldens + "gpt2.json"), from = "\"pre_tokenizer\"";
    const std::string split =
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" + h.pattern() +
        R"("},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},"x")";
    std::string text = good;
    text.replace(text.find(from), from.size(), split);
    write_text(d + "/p.json", text);
    return Words{"tokenizer", "encode", d + "/p.json", std::string(60, 'a') + "!"};
  };
  all["vocab.json"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/vocab.json", h.spoilt(R"({"<|endoftext|>":0,"a":1,"b":2,"ab":3})"));
    write_text(d + "/merges.txt", h.below(2) == 0 ? "a b\n" : h.bytes(100000));
    return Words{"tokenizer", "encode", d + "/vocab.json", "ab"};
  };
  all["ranks"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/r.tiktoken", h.spoilt(read_text(kGoldens + "cl100k.tiktoken")));
    return Words{"tokenizer", "encode", d + "/r.tiktoken@cl100k", "hi"};
  };
  all["sentencepiece"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/s.model", "\n" + h.spoilt(std::string("\x0a\x05\x0a\x03:ab\x12\x04:\x08\x01:}", 14) + h.bytes(5000)));
    return Words{"tokenizer", "encode", d + "/s.model", "hi"};
  };
  all["config.json"] = [model](Hostile& h, const std::string& d) {
    model(d, "config.json", h.spoilt(kConfig));
    return h.below(2) == 0 ? Words{"model", "config", d + "/m"} : model_sample(d);
  };
  all["index.json"] = [model](Hostile& h, const std::string& d) {
    model(d, "model.safetensors.index.json", h.spoilt(R"({"metadata":{},"weight_map":{"a":"x.safetensors","b":"../y"}})"));
    fs::remove(d + "/m/model.safetensors");
    return model_sample(d);
  };
  all["safetensors"] = [model](Hostile& h, const std::string& d) {
    const std::string whole = safetensors(h.spoilt(kHeader));
    model(d, "model.safetensors", h.below(4) == 0 ? h.bytes(8) + whole : whole);
    return model_sample(d);
  };
  all["lines"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/t.jsonl", "{\"text\":\"good\"}\n" + h.spoilt(R"({"text":"x","n":[1,2]})") + "\n" + h.bytes(50) + "\n");
    return Words{"data", "build", d + "/t.jsonl", "--tokenizer", "bytes", "--output", d + "/out"};
  };
  all["packed text"] = [](Hostile& h, const std::string& d) {
    const std::string name = d + "/t.txt" + h.one_of({".gz", ".zst", ".xz", ".bz2"});
    write_text(name, h.one_of({"\x1f\x8b\x08", "\x28\xb5\x2f\xfd",
                               "\xfd"
                               "7zXZ",
                               "BZh9"}) +
                         h.bytes(3000));
    return Words{"data", "build", name, "--tokenizer", "bytes", "--output", d + "/out"};
  };
  all["questions"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/q.jsonl", h.spoilt(R"({"context":"a","choices":["b","c"],"answer":1})") + "\n");
    return Words{"eval", d + "/m", "--choices", d + "/q.jsonl", "--set", "data.tokenizer=bytes"};
  };
  all["shard"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/s.h5", h.spoilt("\x89HDF\r\n\x1a\n" + h.bytes(6000)));
    return Words{"data", "verify", d + "/s.h5"};
  };
  all["manifest"] = [](Hostile& h, const std::string& d) {
    fs::create_directories(d + "/c/checkpoints/step-00000001");
    write_text(d + "/c/checkpoints/step-00000001/manifest.json", h.spoilt(R"({"digest":"0123456789abcdef",)"
                                                                          "\n"
                                                                          R"("manifest":{"a":1}})"));
    return Words{"checkpoint", "verify", d + "/c"};
  };
  all["yaml"] = [](Hostile& h, const std::string& d) {
    write_text(d + "/x.yaml", h.spoilt("model: {layers: 1, width: 16}\ntrain: {steps: 1}\n"));
    return Words{"plan", d + "/x.yaml"};
  };
  all["other files"] = [](Hostile& h, const std::string& d) {
    fs::remove_all(d + "/o");
    fs::create_directories(d + "/o/m");
    const auto [name, words] = std::vector<std::pair<std::string, Words>>{
        {"t.json", {"tokenizer", "encode", d + "/o/t.json", "hi"}},
        {"s.model", {"tokenizer", "encode", d + "/o/s.model", "hi"}},
        {"m/config.json", {"model", "config", d + "/o/m"}},
        {"t.txt", {"data", "build", d + "/o", "--tokenizer", "bytes", "--output", d + "/out"}},
        {"x.yaml", {"plan", d + "/o/x.yaml"}},
        {"s.h5", {"data", "verify", d + "/o/s.h5"}}}[h.below(6)];
    const std::string path = d + "/o/" + name;
    const uint64_t kind = h.below(6);
    if (kind == 0 && mkfifo(path.c_str(), 0600) != 0) FAIL("no pipe");
    if (kind == 1) fs::create_directory(path);
    if (kind > 1) fs::create_symlink(std::vector<std::string>{path, "/nowhere", "/dev/zero", "/proc/self/mem"}[kind - 2], path);
    return words;
  };
  return all;
}

std::string problem_of(const Outcome& outcome) {
  const bool sanitized = std::string_view(TRIREME_SANITIZE) != "";
  if (outcome.signal != 0) return "signal " + std::to_string(outcome.signal);
  if (outcome.code != 0 && (outcome.code < 2 || outcome.code > 4)) return "code " + std::to_string(outcome.code);
  if (outcome.seconds > (sanitized ? 20 : 1)) return std::to_string(outcome.seconds) + " s";
  if (outcome.mebibytes > 200 && !sanitized) return std::to_string(outcome.mebibytes) + " MiB";
  if (outcome.code != 0 && outcome.errors.empty()) return "no message";
  for (const char c : outcome.errors)
    if ((c >= 0 && c < ' ' && c != '\n') || c == 0x7f) return "a control character in the message";
  return "";
}

void give(uint64_t first_seed, int of_each) {
  const Scratch scratch;
  std::map<std::string, std::map<std::string, int>> table;
  double slowest = 0, largest = 0;
  for (const auto& [kind, make] : kinds())
    for (int i = 0; i < of_each; ++i) {
      const uint64_t seed = first_seed + static_cast<uint64_t>(i);
      Hostile hostile(seed);
      const Words words = make(hostile, scratch.path());
      const Outcome outcome = run_program(scratch.path(), words);
      CAPTURE(kind, seed, words, outcome.errors.substr(0, 500));
      CHECK(problem_of(outcome) == "");
      ++table[kind]["code " + std::to_string(outcome.code)];
      slowest = std::max(slowest, outcome.seconds), largest = std::max(largest, outcome.mebibytes);
    }
  std::string lines;
  for (const auto& [kind, outcomes] : table) {
    lines += "\n  " + kind + ":";
    for (const auto& [code, count] : outcomes) lines += " " + code + " " + std::to_string(count) + ",";
  }
  WARN("slowest " << slowest << " s, largest " << largest << " MiB" << lines);
}

}  // namespace

TEST_CASE("hostile files of every kind end with a coded error, in time and memory") { give(1, 4); }
TEST_CASE("many hostile files of every kind", "[.][soak]") { give(1000, 40); }
