#include "data/documents/documents.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "data/documents/list_files.h"
#include "data/tokenizer/tokenizer_words.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
constexpr int64_t kChunk = 4 << 20;

// With U+FFFD in place of what is not UTF-8, which the journal of a build, JSON, could not keep.
std::string made_utf8(std::string_view bytes) {
  std::string valid;
  while (!bytes.empty()) {
    const size_t length = utf8_prefix(bytes);
    valid += bytes.substr(0, length);
    bytes.remove_prefix(length);
    if (bytes.empty()) break;
    valid += "\xef\xbf\xbd";
    bytes.remove_prefix(1);
  }
  return valid;
}

}  // namespace

void Problems::add(const std::string& problem, const DocumentOptions& options) {
  if (!options.skip_bad) throw DataError(problem);
  ++count;
  if (first.size() < kKept) first.push_back(made_utf8(problem));
}

size_t Documents::cut(std::string_view text) const {
  for (const size_t limit : {kUsualPassage, kLongestPassage}) {
    if (text.size() <= limit) return text.size();
    const size_t place =
        options_.tokenizer != nullptr ? options_.tokenizer->last_cut(text, limit) : last_cut_between_words(text, limit);
    if (place > 0) return place;
  }
  return start_of_character(text, kLongestPassage);
}

Documents::Documents(std::vector<std::string> files, DocumentOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  for (const std::string& file : files_) {
    std::error_code unreadable;  // reported when the file's turn comes
    const auto size = fs::file_size(file, unreadable);
    if (!unreadable) bytes_total_ += static_cast<int64_t>(size);
  }
  if (std::ranges::find(files_, kStandardInput) != files_.end()) bytes_total_ = 0;
}

void Documents::close() {
  if (file_) bytes_read_ += file_->size();
  file_.reset();
}

// The next file that can be read, if there is one.
bool Documents::open_next(std::vector<Passage>& passages) {
  while (next_file_ < files_.size()) {
    const std::string& path = files_[next_file_++];
    try {
      file_ = path == kStandardInput ? TextFile::standard_input(options_.stdin_name) : TextFile(path);
      begun_ = ended_ = false;
      line_ = passages_ = 0;
      taken_ = 0;
      dropped_ = 0;
      pending_.clear();
      begin_file();
      return true;
    } catch (const DataError& problem) {
      close();
      passages.emplace_back().problem = problem.what();
    }
  }
  return false;
}

// Reads another chunk after dropping what was taken; false at the end of the file.
bool Documents::fill() {
  if (ended_) return false;
  pending_.erase(0, taken_);
  dropped_ += static_cast<int64_t>(taken_);
  taken_ = 0;
  const size_t before = pending_.size();
  pending_.resize(before + static_cast<size_t>(kChunk));
  const int64_t count = file_->read(pending_.data() + before, kChunk);
  pending_.resize(before + static_cast<size_t>(count));
  ended_ = file_->ended();
  return count > 0;
}

bool Documents::read_passage(std::vector<Passage>& passages) {
  const bool starts = !begun_;
  begun_ = true;
  while (pending_.size() - taken_ <= kLongestPassage && fill()) {
  }
  const std::string_view rest = std::string_view(pending_).substr(taken_);
  if (rest.empty()) return false;
  const size_t length = cut(rest);
  if (!file_->rewinds())  // standard input could not be checked before; its earlier parts are in use already
    refuse_binary(taken_ + length, utf8_prefix(rest.substr(0, length)) != length ? file_->path() : "");
  passages.push_back({.text = std::string(rest.substr(0, length)),
                      .starts = starts,
                      .ends = length == rest.size(),
                      .source = {.file = file_->path(), .offset = dropped_ + static_cast<int64_t>(taken_)}});
  taken_ += length;
  return true;
}

// The next line; false at the end of the file.
bool Documents::take_line(Passage& line) {
  size_t searched = taken_;
  size_t end = pending_.find('\n', searched);
  while (end == std::string::npos && pending_.size() - taken_ <= kLongestLine) {
    searched = pending_.size() - taken_;  // fill() moves what is left to the front
    if (!fill()) break;
    end = pending_.find('\n', searched);
  }
  if (taken_ == pending_.size()) return false;
  line.json = true;
  line.source.file = file_->path();
  line.source.offset = dropped_ + static_cast<int64_t>(taken_);
  line.source.line = ++line_;
  line.problem.clear();
  if (end == std::string::npos && pending_.size() - taken_ > kLongestLine) {
    drop_line(line);
    return true;
  }
  const size_t stop = end == std::string::npos ? pending_.size() : end;
  line.text = pending_.substr(taken_, stop - taken_);
  taken_ = std::min(stop + 1, pending_.size());
  return true;
}

// One that is too long, up to its end.
void Documents::drop_line(Passage& line) {
  line.problem = text(file_->path(), ":", line_, ": longer than ", kLongestLine, " bytes");
  size_t end = std::string::npos;
  do {
    taken_ = pending_.size();
    if (!fill()) break;
    end = pending_.find('\n');
  } while (end == std::string::npos);
  taken_ = end == std::string::npos ? pending_.size() : end + 1;
}

// The next line that is not empty; false at the end of the file.
bool Documents::read_line(std::vector<Passage>& passages) {
  try {
    for (Passage line; take_line(line);) {
      if (line.problem.empty() && line.text.find_first_not_of(" \t\r") == std::string::npos) continue;
      passages.push_back(std::move(line));
      return true;
    }
  } catch (const DataError& problem) {  // what is packed is damaged: the lines in front of it hold
    passages.emplace_back().problem = problem.what();
  }
  return false;
}

std::vector<Passage> Documents::read(int64_t bytes) {
  std::vector<Passage> passages;
  const int64_t enough = text_read_ + bytes;
  while (passages.empty() || text_read_ < enough) {
    if (!file_ && !open_next(passages)) break;
    const size_t before = passages.size();
    const bool more = json_lines_ ? read_line(passages) : read_passage(passages);
    for (size_t i = before; i < passages.size(); ++i, ++passages_) text_read_ += static_cast<int64_t>(passages[i].text.size());
    if (!more) close();
  }
  return passages;
}

void Documents::parse(Passage& passage) const {
  if (!passage.json || !passage.problem.empty()) return;
  ParsedLine parsed = parse_line(passage.text, options_);
  if (!parsed.problem.empty()) passage.problem = text(passage.source.file, ":", passage.source.line, ": ", parsed.problem);
  passage.json = false;
  if (!options_.has_prompts()) {
    passage.text = parsed.parts.empty() ? "" : std::move(parsed.parts.front().text);
    return;
  }
  passage.text.clear();
  for (const LinePart& part : parsed.parts) {
    if (part.trained && parsed.prompted) break;
    passage.text += part.text;
  }
  passage.parts = std::move(parsed.parts);
}

std::vector<Passage> Documents::next(int64_t bytes) {
  std::vector<Passage> good;
  while (good.empty()) {
    std::vector<Passage> passages = read(bytes);
    if (passages.empty()) break;
#pragma omp parallel for schedule(dynamic, 16)
    for (size_t i = 0; i < passages.size(); ++i) parse(passages[i]);
    for (Passage& passage : passages) {
      if (!passage.problem.empty())
        problems_.add(passage.problem, options_);
      else if (!passage.text.empty())
        good.push_back(std::move(passage));
    }
  }
  return good;
}

void Documents::go_on_from(const Position& position) {
  for (; next_file_ < std::min(position.file, files_.size()); ++next_file_) {
    std::error_code unreadable;
    const auto size = fs::file_size(files_[next_file_], unreadable);
    if (!unreadable) bytes_read_ += static_cast<int64_t>(size);
  }
  while (this->position() != position) {
    const Position here = this->position();
    if (read(1).empty() || this->position().file != position.file || here.passages > position.passages)
      throw DataError(text(files_[std::min(position.file, files_.size() - 1)],
                           ": has changed since the build began: ends in front of ", "passage ", position.passages));
  }
}

}  // namespace trireme
