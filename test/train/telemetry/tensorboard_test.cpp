// Event files, read by a small reader of this file. scripts/check_telemetry.py has TensorBoard's own reader do so.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/tensorboard_file.h"
#include "train/telemetry/tensorboard_format.h"

using namespace trireme;

namespace {

struct FileEvent {
  double time = 0;
  int64_t step = 0;
  std::string version{}, tag{};
  float value = 0;
  bool start = false;
};

template <class Number>
Number number_at(std::string_view bytes) {
  Number value{};
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE_FALSE(bytes.empty());
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

// Calls field(number, content, varint) for each field of a message.
template <class Field>
void for_fields(std::string_view bytes, const Field& field) {
  while (!bytes.empty()) {
    const uint64_t key = take_varint(bytes), type = key & 7;
    uint64_t varint = 0, size = type == 1 ? 8 : 4;
    if (type == 0) varint = take_varint(bytes), size = 0;
    if (type == 2) size = take_varint(bytes);
    REQUIRE(size <= bytes.size());
    field(static_cast<int>(key >> 3), bytes.substr(0, size), varint);
    bytes.remove_prefix(size);
  }
}

FileEvent event_of(std::string_view bytes) {
  FileEvent event;
  for_fields(bytes, [&](int field, std::string_view content, uint64_t varint) {
    if (field == 1) event.time = number_at<double>(content);
    if (field == 2) event.step = static_cast<int64_t>(varint);
    if (field == 3) event.version = content;
    if (field == 7) for_fields(content, [&](int f, std::string_view, uint64_t status) { event.start = f == 1 && status == 1; });
    if (field == 5)
      for_fields(content, [&](int, std::string_view scalar, uint64_t) {
        for_fields(scalar, [&](int f, std::string_view c, uint64_t) {
          if (f == 1) event.tag = c;
          if (f == 2) event.value = number_at<float>(c);
        });
      });
  });
  return event;
}

uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

std::vector<FileEvent> events_of(const std::string& path) {
  const std::string file = read_text(path);
  std::vector<FileEvent> events;
  for (std::string_view rest = file; !rest.empty();) {
    REQUIRE(rest.size() >= 16);
    const auto size = number_at<uint64_t>(rest);
    REQUIRE(rest.size() >= 16 + size);
    CHECK(number_at<uint32_t>(rest.substr(8)) == masked(rest.substr(0, 8)));
    CHECK(number_at<uint32_t>(rest.substr(12 + size)) == masked(rest.substr(12, size)));
    events.push_back(event_of(rest.substr(12, size)));
    rest.remove_prefix(16 + size);
  }
  return events;
}

std::vector<std::string> event_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

StepRecord board_record(int64_t step) {
  return {.step = step,
          .loss = 2.5 + static_cast<double>(step),
          .grad_norm = 0.75,
          .lr = 1e-3,
          .tokens = 4096 * step,
          .step_ms = 12.5,
          .tokens_per_second = 80000,
          .data_ms = 0.5,
          .mfu = NAN};
}

}  // namespace

TEST_CASE("CRC-32C has the values of its definition") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("an event file has the version, the start and each known number of a record") {
  const Scratch directory;
  {
    TensorBoardFile file(directory.path(), 40);
    file.read(board_record(41));
    file.read(EvalRecord{.step = 41, .val_loss = 3.25, .bits_per_byte = NAN});
    file.read(ChoicesRecord{.step = 41, .name = "quiz", .accuracy = 0.5, .normalised = 0.625});
    file.caught_up();
    file.read(EnergyRecord{
        .step = 42, .totals = {.joules = 7.2e6}, .measured = true, .joules_per_token = 0.25, .watts = 300, .cost = 12.5});
    file.read(SaveRecord{.step = 300, .bytes = 1 << 20, .seconds = 1.5});
    file.caught_up();
  }
  const std::vector<std::string> files = event_files(directory.path());
  REQUIRE(files.size() == 1);
  CHECK_THAT(files[0], ContainsSubstring("/events.out.tfevents."));
  const std::vector<FileEvent> events = events_of(files[0]);
  REQUIRE(events.size() == 2 + 7 + 2 + 2 + 4 + 3);
  CHECK(events[0].version == "brain.Event:2");
  CHECK((events[1].start && events[1].step == 41));
  const auto value = [&](int64_t step, const std::string& tag) {
    const auto found = std::ranges::find_if(events, [&](const FileEvent& e) { return e.step == step && e.tag == tag; });
    return found == events.end() ? NAN : found->value;
  };
  CHECK(value(41, "train/loss") == 43.5f);
  CHECK(value(41, "train/lr") == 1e-3f);
  CHECK(value(41, "train/tokens") == 4096 * 41);
  CHECK(std::isnan(value(41, "train/mfu")));
  CHECK(value(41, "eval/loss") == 3.25f);
  CHECK(value(41, "eval/quiz/acc_norm") == 0.625f);
  CHECK(value(42, "energy/joules_per_token") == 0.25f);
  CHECK(value(42, "energy/power_w") == 300.f);
  CHECK(value(42, "energy/kwh") == 2.f);
  CHECK(value(42, "cost/so_far") == 12.5f);
  CHECK(value(300, "save/bytes") == 1 << 20);
  for (const FileEvent& event : events) CHECK(event.time > 1.7e9);
}

TEST_CASE("each start has an event file of its own, whose name is the last in order") {
  const Scratch directory;
  for (int start = 0; start < 3; ++start) {
    TensorBoardFile file(directory.path(), 10 * start);
    file.caught_up();
  }
  const std::vector<std::string> files = event_files(directory.path());
  REQUIRE(files.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(events_of(files[i])[1].step == static_cast<int64_t>(10 * i + 1));
}
