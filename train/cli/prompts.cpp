#include "train/cli/prompts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "data/documents/documents.h"

namespace trireme {
namespace {

// Without the line end at its end.
std::string without_end(std::string line) {
  for (const char end : {'\n', '\r'})
    if (line.ends_with(end)) line.pop_back();
  return line;
}

std::string all_of(File input) {
  std::string all, block(64 << 10, '\0');
  for (int64_t count; (count = input.read(block.data(), std::ssize(block))) > 0;) all.append(block, 0, static_cast<size_t>(count));
  return all;
}

void add_lines(std::vector<std::string>& prompts, const std::string& all) {
  TextReader in(all);
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) prompts.push_back(without_end(std::move(line)));
}

void add_json_lines(std::vector<std::string>& prompts, const std::string& file) {
  constexpr int64_t kBytes = 1 << 20;
  Documents documents({file}, {.field = "prompt", .skip_bad = false});
  for (std::vector<Passage> passages; !(passages = documents.next(kBytes)).empty();)
    for (Passage& passage : passages) prompts.push_back(std::move(passage.text));
}

}  // namespace

std::vector<std::string> read_prompts(const std::vector<std::string>& words, const std::string& file) {
  if (words.empty() && file.empty()) throw ConfigError("trireme sample: needs --prompt or --prompts");
  if (std::ranges::count(words, "-") + (file == "-" ? 1 : 0) > 1)
    throw ConfigError("--prompt -, --prompts -: standard input can be read once");
  std::vector<std::string> prompts;
  for (const std::string& word : words) prompts.push_back(word == "-" ? without_end(all_of(File::standard_input())) : word);
  if (file.ends_with(".jsonl") || file.ends_with(".ndjson"))
    add_json_lines(prompts, file);
  else if (!file.empty())
    add_lines(prompts, all_of(file == "-" ? File::standard_input() : File::open_to_read(file)));
  if (prompts.empty()) throw ConfigError("--prompts " + file + ": holds no text");
  return prompts;
}

}  // namespace trireme
