#include "data/shard/exclusion.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/replace_file.h"
#include "base/text_stream.h"
#include "data/shard/provenance.h"

namespace trireme {

namespace {

constexpr std::string_view kFirstWords = "trireme exclusion 1 ";
constexpr int64_t kMostBytes = int64_t{1} << 30;

template <class Number>
bool parse_number(std::string_view words, Number& value, int base = 10) {
  const auto [end, problem] = std::from_chars(words.data(), words.data() + words.size(), value, base);
  return problem == std::errc() && end == words.data() + words.size();
}

// "17" or "120-140" or "-1" into `documents`, which rise.
bool parse_documents(std::string_view line, std::vector<int64_t>& documents) {
  const size_t dash = line.find('-', 1);
  int64_t first = 0, last = 0;
  if (!parse_number(line.substr(0, dash), first)) return false;
  last = first;
  if (dash != std::string_view::npos && !parse_number(line.substr(dash + 1), last)) return false;
  if (first < -1 || last < first || last > kMostBytes - std::ssize(documents) || (!documents.empty() && first <= documents.back()))
    return false;
  for (int64_t number = first; number <= last; ++number) documents.push_back(number);
  return true;
}

std::string body_of(const Exclusion& exclusion) {
  std::string body;
  for (const ExcludedShard& shard : exclusion.shards) {
    body += "shard " + hex(shard.digest) + " " + shard.path + "\n";
    for (size_t i = 0, next = 0; i < shard.documents.size(); i = next) {
      for (next = i + 1; next < shard.documents.size() && shard.documents[next] == shard.documents[next - 1] + 1;) ++next;
      const bool several = next > i + 1 && shard.documents[i] >= 0;
      if (!several) next = i + 1;
      body += std::to_string(shard.documents[i]) + (several ? "-" + std::to_string(shard.documents[next - 1]) : "") + "\n";
    }
  }
  return body;
}

}  // namespace

int64_t Exclusion::documents() const {
  int64_t sum = 0;
  for (const ExcludedShard& shard : shards) sum += std::ssize(shard.documents);
  return sum;
}

bool is_exclusion(const std::string& path) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return false;
  const File file = File::open_to_read(path);
  std::string words(static_cast<size_t>(std::min(file.size(), static_cast<int64_t>(kFirstWords.size()))), '\0');
  file.read_at(words.data(), std::ssize(words), 0);
  return words == kFirstWords;
}

Exclusion read_exclusion(const std::string& path) {
  const File file = File::open_to_read(path);
  const int64_t size = file.size();
  if (size > kMostBytes) throw DataError(text(path, ": ", size, " bytes are too many for a list of excluded documents"));
  std::string all(static_cast<size_t>(size), '\0');
  file.read_at(all.data(), size, 0);
  if (!all.starts_with(kFirstWords))
    throw DataError(path + ": is not a list of excluded documents, as 'trireme data exclude' makes it");
  const size_t begin = kFirstWords.size() + 17;
  const std::string_view body = all.size() < begin ? std::string_view() : std::string_view(all).substr(begin);
  if (all.size() < begin || all.substr(kFirstWords.size(), 17) != hex(digest(body)) + "\n")
    throw DataError(path + ": is damaged, or was edited: its digest does not match. Make it anew with 'trireme data exclude'");
  Exclusion exclusion{.path = path, .shards = {}};
  TextReader lines{std::string(body)};
  int64_t number = 1;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    bool good = false;
    if (line.starts_with("shard ") && line.size() > 23 && line[22] == ' ') {
      ExcludedShard& shard = exclusion.shards.emplace_back(ExcludedShard{.digest = 0, .path = line.substr(23), .documents = {}});
      good = parse_number(std::string_view(line).substr(6, 16), shard.digest, 16);
    } else if (!exclusion.shards.empty()) {
      good = parse_documents(line, exclusion.shards.back().documents);
    }
    if (!good) throw DataError(text(path, ":", number, ": is malformed"));
  }
  return exclusion;
}

void write_exclusion(const Exclusion& exclusion) {
  const std::string body = body_of(exclusion), all = std::string(kFirstWords) + hex(digest(body)) + "\n" + body;
  if (!replace_file_durably(exclusion.path, all)) throw unwritable(exclusion.path);
}

}  // namespace trireme
