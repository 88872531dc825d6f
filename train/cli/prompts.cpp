#include "train/cli/prompts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text_stream.h"
#include "data/documents/documents.h"

namespace trireme {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

// Without the line end at its end.
std::string without_end(std::string line) {
  for (const char end : {'\n', '\r'})
    if (line.ends_with(end)) line.pop_back();
  return line;
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r\n") == std::string::npos; }

std::string all_of(TextFile input) {
  std::string all, block(kReadBytes, '\0');
  for (int64_t count; (count = input.read(block.data(), std::ssize(block))) > 0;) all.append(block, 0, static_cast<size_t>(count));
  if (all.find('\0') != std::string::npos) throw DataError(input.path() + ": has zero bytes; text or JSON lines are wanted");
  return all;
}

std::string standard_input() { return all_of(TextFile::standard_input("standard input")); }

void add_lines(std::vector<Prompt>& prompts, const std::string& name, const std::string& all) {
  TextReader in(all);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);)
    if (++number, !is_blank(line)) prompts.push_back({without_end(std::move(line)), text(name, ":", number)});
}

void add_json_lines(std::vector<Prompt>& prompts, const std::string& file) {
  Documents documents({file}, {.field = "prompt", .skip_bad = false});
  for (std::vector<Passage> passages; !(passages = documents.read(kReadBytes)).empty();)
    for (Passage& passage : passages) {
      if (passage.problem.empty() && is_blank(passage.text)) continue;
      documents.parse(passage);
      if (!passage.problem.empty()) throw DataError(passage.problem);
      prompts.push_back({std::move(passage.text), text(passage.source.file, ":", passage.source.line)});
    }
}

void add_file(std::vector<Prompt>& prompts, const std::string& file) {
  const size_t before = prompts.size();
  const std::string name = unpacked_name(file);
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson"))
    add_json_lines(prompts, file);
  else
    add_lines(prompts, file, file == "-" ? standard_input() : all_of(TextFile(file)));
  if (prompts.size() == before) throw ConfigError("--prompts " + file + ": holds no text");
}

}  // namespace

std::vector<Prompt> read_prompts(const std::vector<std::string>& words, const std::string& file) {
  if (words.empty() && file.empty()) throw ConfigError("trireme sample: needs --prompt or --prompts");
  if (std::ranges::count(words, "-") + (file == "-" ? 1 : 0) > 1)
    throw ConfigError("--prompt -, --prompts -: standard input can be read once");
  std::vector<Prompt> prompts;
  for (const std::string& word : words) prompts.push_back({word == "-" ? without_end(standard_input()) : word, "--prompt"});
  if (!file.empty()) add_file(prompts, file);
  return prompts;
}

}  // namespace trireme
