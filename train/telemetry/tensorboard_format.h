// TensorBoard's event files: records with checksums (TFRecord), each a protocol buffer `Event`.
//
// A record is its length (u64), the masked CRC-32C of these eight bytes, its data, and the masked
// CRC-32C of the data, all little-endian. The fields are those of TensorFlow's event.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

std::string tensorboard_record(std::string_view event);

// Times are seconds since 1970.
std::string version_event(double time);                                                    // the first of a file
std::string scalar_event(double time, int64_t step, const std::string& tag, float value);  // tag: "train/loss"
// A start from `step`: TensorBoard drops what earlier files have at this step and later.
std::string start_event(double time, int64_t step);

}  // namespace trireme
