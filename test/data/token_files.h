// Writes files of tokens in the formats of llm.c, Megatron-LM and NumPy, independently of the
// program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

template <class Number>
std::string raw(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}
template <class Number>
std::string raw(Number number) {
  return raw(std::vector<Number>{number});
}
template <class Number>
std::string as(const std::vector<int32_t>& tokens) {
  return raw(std::vector<Number>(tokens.begin(), tokens.end()));
}

inline std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return raw(header) + tokens;
}

// Megatron's index of documents, each of one sequence.
inline std::string index_of(uint8_t type, int64_t width, const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers, first{0};
  int64_t at = 0;
  for (const auto& document : documents) {
    lengths.push_back(static_cast<int32_t>(document.size()));
    pointers.push_back(at);
    first.push_back(static_cast<int64_t>(lengths.size()));
    at += std::ssize(document) * width;
  }
  return std::string("MMIDIDX\0\0", 9) + raw(uint64_t{1}) + raw(type) + raw(uint64_t{lengths.size()}) +
         raw(uint64_t{first.size()}) + raw(lengths) + raw(pointers) + raw(first);
}

inline std::string npy(const std::string& type, const std::string& shape, const std::string& data, char version = 1) {
  std::string dictionary = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const size_t front = version == 1 ? 10 : 12;
  dictionary.resize((front + dictionary.size() + 64) / 64 * 64 - front - 1, ' ');
  dictionary += '\n';
  const std::string length =
      version == 1 ? raw(static_cast<uint16_t>(dictionary.size())) : raw(static_cast<uint32_t>(dictionary.size()));
  return "\x93NUMPY" + std::string{version, '\0'} + length + dictionary + data;
}
