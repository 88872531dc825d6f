// safetensors, the file format of published weights (https://github.com/huggingface/safetensors,
// "Format"). A file is 8 bytes for the length of a JSON header {NAME: {dtype, shape,
// data_offsets}}, the header and the data. A model is one file, model.safetensors, or several with
// a model.safetensors.index.json.
//
// Any problem with a file is a DataError that names it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace trireme {

// Python that converts the published model of a directory to safetensors, in one line.
std::string conversion_code(const std::string& directory);

enum class FloatType { f32, bf16 };  // dtype to write

struct PublishedTensor {
  std::string type;  // as in the file
  std::vector<int64_t> shape;
  int64_t begin, bytes;  // in the file
};

// Parses an untrusted header: offsets must cover the data without gap or overlap, and match type
// and shape.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, PublishedTensor, std::less<>>& tensors() const { return tensors_; }
  // Reads elements [first, first + count) of a float tensor, row-major, as f32.
  void read(const std::string& name, int64_t first, int64_t count, float* into) const;

 private:
  File file_;
  void parse_header(std::string_view header);

  std::map<std::string, PublishedTensor, std::less<>> tensors_;
};

// All tensors of a directory, or of one file.
class PublishedWeights {
 public:
  // Calls `moved` after each read.
  explicit PublishedWeights(const std::string& path, std::function<void()> moved = nullptr);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  const PublishedTensor* find(const std::string& name) const;  // nullptr: no such tensor
  void read(const std::string& name, int64_t first, int64_t count, float* into) const;

 private:
  std::string path_;
  std::function<void()> moved_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

// Writes tensors one after the other, in the order of the entries given.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
  };
  // Creates the file with its header, under a temporary name.
  SafetensorsWriter(const std::string& path, const std::vector<Entry>& entries, FloatType type);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void append(const float* values, int64_t count);  // the next elements, rounded to nearest even
  void commit();                                    // call once all elements are written: syncs and renames the file

 private:
  SafetensorsWriter(const std::string& path, FloatType type);
  void write(const void* bytes, int64_t count);

  std::string path_;
  FloatType type_;
  File file_;
  int64_t written_ = 0, left_ = 0;  // bytes; elements still missing
  bool committed_ = false;
};

// Size of such a file in bytes, header and data.
int64_t bytes_of(const std::vector<SafetensorsWriter::Entry>& entries, FloatType type);

}  // namespace trireme
