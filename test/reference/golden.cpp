#include "test/reference/golden.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/json.h"

namespace trireme {
namespace {

// Sets each key that the JSON object has.
struct FromJson {
  const Json& object;
  size_t used = 0;

  template <class Field, class... Rest>
  void operator()(const char* name, Field& field, Rest&&...) {
    if (!object.contains(name)) return;
    ++used;
    if constexpr (std::is_enum_v<Field>) {
      const auto word = object.at(name).get<std::string>();
      for (size_t i = 0; i < Names<Field>::words.size(); ++i)
        if (Names<Field>::words[i] == word) field = static_cast<Field>(i);
    } else {
      field = object.at(name).get<Field>();
    }
  }
};

}  // namespace

const GoldenTensor& Golden::operator[](const std::string& name) const {
  const auto at = tensors.find(name);
  if (at == tensors.end()) throw std::runtime_error("the golden has no tensor " + name);
  return at->second;
}

Golden read_golden(const std::string& source, const std::string& name) {
  std::ifstream in(source + "/test/model/goldens/" + name + ".safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  if (bytes.size() < 8) throw std::runtime_error("golden " + name + " is missing");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const Json header = Json::parse(bytes.substr(8, length));

  Golden golden;
  const Json config = Json::parse(header["__metadata__"]["config"].get<std::string>());
  FromJson walk{config};
  golden.model.visit(walk);
  if (walk.used != config.size()) throw std::runtime_error("golden " + name + " has config keys we do not know");
  golden.model.resolve();
  golden.optimizer = Json::parse(header["__metadata__"]["optimizer"].get<std::string>()).get<std::map<std::string, double>>();
  for (const auto& [key, entry] : header.members()) {
    if (key == "__metadata__") continue;
    GoldenTensor& tensor = golden.tensors[key];
    tensor.shape = entry["shape"].get<std::vector<int64_t>>();
    const size_t begin = 8 + length + entry["data_offsets"][0].get<size_t>(),
                 end = 8 + length + entry["data_offsets"][1].get<size_t>();
    if (end > bytes.size()) throw std::runtime_error("golden " + name + " is cut short");
    const auto copy = [&](auto& to) {
      to.resize((end - begin) / 4);
      std::memcpy(to.data(), bytes.data() + begin, end - begin);
    };
    entry["dtype"] == "F32" ? copy(tensor.values) : copy(tensor.ids);
  }
  return golden;
}

double relative_error(const std::vector<float>& values, const std::vector<float>& truth) {
  if (values.size() != truth.size()) return INFINITY;
  double worst = 0, scale = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double error = std::abs(static_cast<double>(values[i]) - static_cast<double>(truth[i]));
    if (std::isnan(error)) return INFINITY;
    worst = std::max(worst, error);
    scale = std::max(scale, std::abs(static_cast<double>(truth[i])));
  }
  return scale > 0 ? worst / scale : worst;
}

}  // namespace trireme
