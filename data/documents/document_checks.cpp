// Checks of a file before its documents are read.
#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "data/documents/documents.h"
#include "data/documents/file_kind.h"

namespace trireme {

namespace {

bool is_lines_by_name(const std::string& path) {
  const std::string name = unpacked_name(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || (name != path && name.ends_with(".json"));
}

// The remedy for a file that is not text, by its name.
std::string to_text(const std::string& path) {
  const bool may_be_tokens = path.ends_with(".bin") || path.ends_with(".idx");
  return may_be_tokens ? kTokensRemedy : "convert it to UTF-8, for instance by `iconv -f LATIN1 -t UTF-8`, or leave it out";
}

}  // namespace

// A plain .json may hold lines, too: then the first is an object that has the field.
bool Documents::looks_like_lines() const {
  if (!file_->path().ends_with(".json")) return false;
  const std::string_view begin(pending_);
  const size_t first = std::min(begin.find_first_not_of(" \t\r\n"), begin.size());
  const std::string_view line = begin.substr(first, begin.find('\n', first) - first);
  const std::string& field = !options_.messages.empty() ? options_.messages
                             : !options_.prompt.empty() ? options_.prompt
                                                        : options_.field;
  const std::string key = '"' + field + '"';
  const bool record = line.starts_with('{') && line.find(key) != std::string_view::npos;
  const bool list = begin.substr(first).starts_with('[') && begin.find(key) != std::string_view::npos;
  if (list) throw DataError(file_->path() + ": is one JSON list: make a line of each element, for instance by `jq -c '.[]'`");
  return record;
}

// Reads the first chunk of the file, and refuses what is neither text nor JSON lines.
void Documents::begin_file() {
  const std::string& path = file_->path();
  const auto refuse_if = [&](const std::string& reason) {
    if (!reason.empty()) throw DataError(path + ": " + reason);
  };
  fill();
  refuse_if(refusal_of_name(unpacked_name(path), pending_));
  refuse_if(refusal_of_bytes(pending_));
  json_lines_ = is_lines_by_name(path) || looks_like_lines();
  if (json_lines_)
    return refuse_if(refusal_of_lines(pending_, ended_, file_->rewinds() ? "rename it" : "give --stdin-name stdin.txt"));
  if (options_.has_prompts()) refuse_if("is not a .jsonl file: prompts, responses and messages are fields of JSON lines");
  if (file_->rewinds()) check_text();
}

// Throws for the first part of pending_ that is not text: [taken_, end).
void Documents::refuse_binary(size_t end, const std::string& where) const {
  const size_t zero = pending_.find('\0', taken_);
  if (zero < end)
    throw DataError(text(file_->path(), ": has a zero byte at byte ", dropped_ + static_cast<int64_t>(zero),
                         ", which text has not: ", to_text(file_->path())));
  if (!where.empty()) throw DataError(text(where, ": is not UTF-8: ", to_text(file_->path())));
}

// Checks the whole file before its first part is handed out, beginning with what is read of it.
void Documents::check_text() {
  const bool in_memory = ended_;  // all of it
  int64_t lines = 1;
  do {
    const size_t good = utf8_prefix(std::string_view(pending_).substr(taken_)) + taken_;
    lines += std::count(pending_.begin() + static_cast<ptrdiff_t>(taken_), pending_.begin() + static_cast<ptrdiff_t>(good), '\n');
    const size_t left = pending_.size() - good;
    const bool bad = left > 3 || (left > 0 && ended_);
    refuse_binary(good, bad ? text(file_->path(), ":", lines) : std::string());
    taken_ = good;
  } while (fill());
  if (taken_ < pending_.size()) refuse_binary(pending_.size(), text(file_->path(), ":", lines));
  taken_ = 0;
  dropped_ = 0;
  if (in_memory) return;
  file_->rewind();
  ended_ = false;
  pending_.clear();
}

}  // namespace trireme
