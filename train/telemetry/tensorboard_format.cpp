#include "train/telemetry/tensorboard_format.h"

#include <array>
#include <bit>

namespace trireme {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

template <class Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

// The checksum of a record: a CRC over bytes that contain CRCs would be weak.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian((crc >> 15 | crc << 17) + 0xa282ead8u);
}

// Fields of a protocol buffer, appended in the order of the calls.
class ProtobufMessage {
 public:
  ProtobufMessage& varint(int field, uint64_t value) {
    key(field, 0), number(value);
    return *this;
  }
  ProtobufMessage& float64(int field, double value) {
    key(field, 1), bytes_ += little_endian(std::bit_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& float32(int field, float value) {
    key(field, 5), bytes_ += little_endian(std::bit_cast<uint32_t>(value));
    return *this;
  }
  ProtobufMessage& bytes(int field, std::string_view value) {
    key(field, 2), number(value.size()), bytes_ += value;
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  void key(int field, int type) { number(static_cast<uint64_t>(field << 3 | type)); }
  void number(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

ProtobufMessage event(double time) {
  ProtobufMessage event;
  event.float64(1, time);
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string tensorboard_record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string version_event(double time) { return event(time).bytes(3, "brain.Event:2").text(); }

std::string scalar_event(double time, int64_t step, const std::string& tag, float value) {
  const std::string scalar = ProtobufMessage().bytes(1, tag).float32(2, value).text();
  return event(time).varint(2, static_cast<uint64_t>(step)).bytes(5, ProtobufMessage().bytes(1, scalar).text()).text();
}

std::string start_event(double time, int64_t step) {
  constexpr uint64_t kStart = 1;
  return event(time).varint(2, static_cast<uint64_t>(step)).bytes(7, ProtobufMessage().varint(1, kStart).text()).text();
}

}  // namespace trireme
