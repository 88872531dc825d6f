// safetensors, the file format in which weights are published: 8 bytes for the length of a JSON header {NAME: {dtype, shape,
// data_offsets}}, the header, the data (https://github.com/huggingface/safetensors, "Format"). Whole models are one file,
// model.safetensors, or several with a model.safetensors.index.json.
//
// What is wrong with a file is a DataError that names it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace trireme {

enum class FloatType { f32, bf16 };  // of what is written

struct PublishedTensor {
  std::string type;  // as the file says it
  std::vector<int64_t> shape;
  int64_t begin, bytes;  // in the file
};

// A header that is not trusted: offsets must cover the data without gap or overlap, and be what type and shape make.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, PublishedTensor>& tensors() const { return tensors_; }
  // Elements [first, first + count) of a tensor of floats, row-major, as f32.
  void read(const std::string& name, int64_t first, int64_t count, float* into) const;

 private:
  File file_;
  std::map<std::string, PublishedTensor> tensors_;
};

// The tensors of a directory, or of one file.
class PublishedWeights {
 public:
  // `moved` is told each time that something was read.
  explicit PublishedWeights(const std::string& path, std::function<void()> moved = nullptr);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  const PublishedTensor* find(const std::string& name) const;  // nullptr: there is none
  void read(const std::string& name, int64_t first, int64_t count, float* into) const;

 private:
  std::string path_;
  std::function<void()> moved_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

// Writes tensors one after the other, in the order they were told in.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
  };
  // Makes the file, under a temporary name, with its header.
  SafetensorsWriter(const std::string& path, const std::vector<Entry>& entries, FloatType type);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void append(const float* values, int64_t count);  // the next elements, rounded to nearest even
  void commit();                                    // when all are there: synced, and under its name

 private:
  SafetensorsWriter(const std::string& path, FloatType type);
  void write(const void* bytes, int64_t count);

  std::string path_;
  FloatType type_;
  File file_;
  int64_t written_ = 0, left_ = 0;  // bytes; elements that are still to come
  bool committed_ = false;
};

// Bytes of such a file's header and data.
int64_t bytes_of(const std::vector<SafetensorsWriter::Entry>& entries, FloatType type);

}  // namespace trireme
