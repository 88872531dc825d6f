#include "train/step/storage.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/number_format.h"

namespace trireme {
namespace {

// Calls that name a file, as counted on Linux with O_DIRECT.
constexpr int64_t kCallsOfSave = 10, kCallsOfCommit = 17, kCallsOfRestore = 2;
// A start opens config, tokenizer, the first shards and the run's directory. Programs are Open MPI 4's and ours.
constexpr int64_t kCallsOfStart = 22, kCallsOfFirst = 230, kCallsOfPrograms = 900;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

Storage parse_storage(const std::string& words) {
  const std::vector<std::string> three = words_of(words);
  if (three.size() == 3) {
    const auto write = parse_bytes(three[0]), read = parse_bytes(three[1]);
    double calls = 0;
    const char* const end = three[2].data() + three[2].size();
    const auto [stopped, error] = std::from_chars(three[2].data(), end, calls);
    if (write && read && error == std::errc() && stopped == end && calls > 0)
      return {.write = static_cast<double>(*write), .read = static_cast<double>(*read), .calls = calls};
  }
  throw ConfigError("--storage " + words +
                    ": must be bytes written and read a second and files opened a second, such as 100GB,200GB,50000");
}

StorageTimes storage_times(const RunConfig& config, const CheckpointSize& checkpoint, int64_t ranks, const Storage& storage) {
  // The first copy is saved, and all copies are read from its files. What each has of its own is read once.
  const int64_t copies = Mesh(0, ranks, config.parallel).copies();
  const auto bytes = static_cast<double>(checkpoint.bytes);
  StorageTimes times{.start_calls = kCallsOfStart * ranks + kCallsOfFirst,
                     .save_calls = kCallsOfSave * checkpoint.files + kCallsOfCommit,
                     .restore_calls = kCallsOfRestore * ranks + kCallsOfRestore,
                     .program_calls = kCallsOfPrograms * ranks};
  times.start = static_cast<double>(times.start_calls) / storage.calls;
  times.start_with_programs = times.start + static_cast<double>(times.program_calls) / storage.calls;
  times.save = bytes / storage.write + bytes / storage.read + static_cast<double>(times.save_calls) / storage.calls;
  const auto apart = static_cast<double>(checkpoint.apart);
  times.restore = ((bytes - apart) * static_cast<double>(copies) + apart) / storage.read +
                  static_cast<double>(times.restore_calls) / storage.calls;
  return times;
}

std::string storage_lines(const RunConfig& config, const StorageTimes& times) {
  const auto calls = [](int64_t count) { return human_count(static_cast<double>(count)) + " opens and the like"; };
  std::string lines = "\nOn this storage\n  start    " + human_seconds(times.start) + ", with " + calls(times.start_calls) + "; " +
                      human_seconds(times.start_with_programs) + " if programs and libraries are on it, too\n";
  lines += "  save     " + human_seconds(times.save) + "; written and read again, with " + calls(times.save_calls);
  if (config.checkpoint.every > 0)
    lines += "; steps below " + human_seconds(times.save / static_cast<double>(config.checkpoint.every)) +
             " wait for it (checkpoint.every = " + std::to_string(config.checkpoint.every) + ")";
  return lines + "\n  restore  " + human_seconds(times.restore) + " on the mesh that saved, with " + calls(times.restore_calls) +
         "\n";
}

Json storage_json(const StorageTimes& times) {
  return {{"start_seconds", times.start},
          {"start_calls", times.start_calls},
          {"start_with_programs_seconds", times.start_with_programs},
          {"save_seconds", times.save},
          {"save_calls", times.save_calls},
          {"restore_seconds", times.restore},
          {"restore_calls", times.restore_calls}};
}

}  // namespace trireme
