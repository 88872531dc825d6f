#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "test/house/rules.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

struct Row {
  string_view room;
  std::vector<string_view> may_include;  // rooms, or single files
};
const std::vector<Row> kRows{
    {"base", {}},
    {"kernels", {"base"}},
    {"parallel", {"base", "kernels"}},
    {"data", {"base", "kernels"}},
    {"model", {"base", "kernels", "parallel"}},
    {"checkpoint", {"base", "kernels", "parallel", "data/shard/hdf5_file.h"}},
    {"train", {"base", "kernels", "parallel", "data", "model", "checkpoint"}},
    {"reference", {"base", "kernels", "model/config.h"}},  // test/reference/, linked into every room's tests
    {"house", {"base", "kernels"}},                        // test/house/
};

// Inside a room, a file includes only files of lower floors. In inner rooms and back-ends (the directories here) it may also
// include files of its own directory.
constexpr int kBackEnds = 7;  // their floor
const std::map<string_view, int, std::less<>> kFloors{
    {"kernels/op_shape.h", 2},
    {"kernels/tune/attention_choice.h", 8},
    {"kernels/tune/multiply_add.h", 0},
    {"kernels/amx.h", 0},
    {"kernels/x86_features.h", 0},
    {"kernels/allowed_bf16.h", 0},
    {"kernels/vector_bytes.h", 0},
    {"kernels/float8.h", 0},
    {"kernels/rounding.h", 3},
    {"kernels/gate.h", 0},
    {"kernels/part_clock.h", 0},
    {"kernels/trace.h", 0},
    {"kernels/finite.h", 3},
    {"kernels/cuda_facts.h", 3},
    {"kernels/cpu_queue.h", 0},
    {"kernels/cuda_machine.h", 0},
    {"kernels/copy.h", 4},
    {"kernels/race_checker.h", 1},
    {"kernels/tensor.h", 1},
    {"kernels/int8_scale.h", 1},
    {"kernels/config.h", 3},
    {"kernels/stream.h", 3},
    {"kernels/run.h", 4},
    {"kernels/device.h", 4},
    {"kernels/near_cores.h", 0},
    {"kernels/machine_memory.h", 0},
    {"kernels/tune/rates.h", 8},
    {"kernels/memory.h", 5},
    {"kernels/staging_buffer.h", 6},
    {"kernels/tune/product_trial.h", 7},
    {"kernels/tune/product_choice.h", 8},
    {"kernels/graph.h", 5},
    {"kernels/ops/", 6},
    {"kernels/cpu/", kBackEnds},
    {"kernels/cuda/", kBackEnds},
    {"data/config.h", 0},
    {"data/text/", 0},
    {"data/tokenizer/", 1},
    {"data/shard/", 2},
    {"data/documents/", 3},
    {"data/build/", 4},
    {"data/loader/", 5},
    {"train/telemetry/", 0},
    {"train/health/", 0},
    {"train/config/", 1},
    {"train/hub/", 2},
    {"train/step/", 2},
    {"train/eval/", 3},
    {"train/run/", 4},
    {"train/cli/", 5},
    {"model/config.h", 0},
    {"model/model_chunk.h", 1},
    {"model/shards.h", 1},
    {"model/int8_weight.h", 1},
    {"model/part.h", 2},
    {"model/norm.h", 3},
    {"model/shard_sum.h", 3},
    {"model/linear.h", 3},
    {"model/attention.h", 4},
    {"model/mlp.h", 4},
    {"model/embedding.h", 4},
    {"model/head.h", 5},
    {"model/block.h", 5},
    {"model/activations.h", 6},
    {"model/stage.h", 7},
    {"model/stage_units.h", 8},
    {"model/decoder.h", 8},
};

struct Library {
  string_view header;              // its headers begin with this
  std::vector<string_view> hosts;  // files, or beginnings of them
};
const std::vector<Library> kLibraries{
    {"cuda", {"kernels/cuda/", "parallel/nccl", "test/emulation/", "test/places/"}},
    {"cublas", {"kernels/cuda/", "test/emulation/"}},
    {"nvtx3/", {"kernels/cuda/"}},
    {"cudnn", {"kernels/cuda/cudnn", "test/emulation/standins/"}},
    {"nccl.h", {"parallel/nccl", "test/emulation/"}},
    {"oneapi/", {"kernels/cpu/matmul.cpp"}},
    {"omp.h", {"base/openmp_start.cpp", "kernels/", "data/build/tokenizer_train.cpp", "test/"}},
    {"immintrin.h", {"kernels/cpu/"}},
    {"cpuid.h", {"kernels/x86_features.cpp"}},
    {"mpi.h", {"parallel/mpi_comm.h"}},
    {"hdf5.h", {"data/shard/hdf5_file.cpp"}},
    {"pcre2.h", {"data/tokenizer/", "data/text/text_pattern.cpp"}},
    {"sentencepiece_", {"data/tokenizer/tokenizer_sentencepiece.cpp"}},
    {"zlib.h", {"data/text/unpacker.cpp", "test/"}},
    {"zstd.h", {"data/text/unpacker.cpp", "test/"}},
    {"lzma.h", {"data/text/unpacker.cpp", "test/"}},
    {"bzlib.h", {"data/text/unpacker.cpp", "test/"}},
    {"utf8proc.h", {"data/text/unicode.cpp"}},
    {"xxhash.h", {"base/digest.cpp", "data/shard/shard_header.cpp", "data/tokenizer/tokenizer_bpe.cpp", "test/"}},
    {"yaml-cpp/", {"train/config/yaml.cpp"}},
    {"nlohmann/", {"base/json.cpp"}},
    {"linux/", {"base/confined.cpp"}},
    {"CLI/", {"train/cli/command_line.cpp"}},
    {"catch2/", {"test/catch.h"}},
};
const std::set<string_view> kSystemHeaders{"dirent.h", "dlfcn.h",   "netdb.h",  "netinet/",   "elf.h",    "errno.h",
                                           "fcntl.h",  "glob.h",    "malloc.h", "langinfo.h", "link.h",   "locale.h",
                                           "poll.h",   "pthread.h", "sched.h",  "signal.h",   "cxxabi.h", "execinfo.h",
                                           "spawn.h",  "termios.h", "unistd.h", "sys/"};

bool starts_with_any(string_view path, const auto& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](string_view b) { return path.starts_with(b); });
}

const Row* find_row(string_view name) {
  const auto at = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.room == name; });
  return at == kRows.end() ? nullptr : &*at;
}

struct Include {
  int line;
  string name;
  bool ours;  // "quoted", from the repository's root
};

std::vector<Include> includes_of(const Source& source) {
  std::vector<Include> found;
  each_line(code_with_strings(source.text), [&](int number, string_view line) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == string_view::npos || line[hash] != '#') return;
    const size_t word = line.find("include", hash), open = line.find_first_of("<\"", hash);
    if (word == string_view::npos || open == string_view::npos || word > open) return;
    const size_t close = line.find_first_of(">\"", open + 1);
    found.push_back({number, string(line.substr(open + 1, close - open - 1)), line[open] == '"'});
  });
  return found;
}

bool room_may(const Row& room, string_view target) {
  return room.room == room_of(target) || std::any_of(room.may_include.begin(), room.may_include.end(), [&](string_view allowed) {
           return allowed == target || allowed == room_of(target);
         });
}

// A .cpp has the floor of its header. A .cpp without a header, directly in its room, is above all headers there.
std::optional<int> floor_of(string_view path) {
  string header(path);
  if (path.ends_with(".cpp")) header = header.substr(0, header.size() - 4) + ".h";
  if (const auto exact = kFloors.find(header); exact != kFloors.end()) return exact->second;
  const auto directory = kFloors.find(string_view(path).substr(0, path.rfind('/') + 1));
  if (directory != kFloors.end()) return directory->second;
  return std::nullopt;
}

void check_floor(const Source& source, const Include& include, Problems& problems) {
  const string_view room = room_of(source.path);
  const bool inner = room == "data" || room == "train";
  if (room != room_of(include.name) || (room != "kernels" && room != "model" && !inner)) return;
  const bool source_file = !is_header(source.path);
  if (source_file && include.name == source.path.substr(0, source.path.rfind('.')) + ".h") return;
  const auto mine = floor_of(source.path), other = floor_of(include.name);
  if (!other) {
    problems.push_back(at(source, include.line) + include.name + " has no floor in test/house/arrows.cpp");
    return;
  }
  const bool same_directory = source.path.substr(0, source.path.rfind('/')) == include.name.substr(0, include.name.rfind('/'));
  const bool neighbour = same_directory && (inner || (*other == kBackEnds && room == "kernels"));
  if (!mine && source_file) return;
  // A .cpp directly in kernels/ may use any header directly in kernels/, but no op and no back-end.
  const int reach = source_file && mine && *mine < 5 && room == "kernels" ? 5 : mine.value_or(0);
  if (!neighbour && *other >= reach)
    problems.push_back(at(source, include.line) + source.path + " stands below or beside " + include.name);
}

void check_ours(const Source& source, const Include& include, Problems& problems) {
  const auto tested = tested_room(source.path);
  const Row* room = find_row(tested.value_or(room_of(source.path)));
  if (room != nullptr && !include.name.starts_with("test/") && !room_may(*room, include.name))
    problems.push_back(at(source, include.line) + string(room->room) + "/ may not include " + include.name);
  if (!tested && include.name.starts_with("test/") && !source.path.starts_with("test/"))
    problems.push_back(at(source, include.line) + "only tests include " + include.name);
  for (const string backend : {"kernels/cpu/", "kernels/cuda/"}) {
    const bool inside =
        source.path.starts_with(backend) || source.path.starts_with("test/kernels/") || source.path.starts_with("test/emulation/");
    if (include.name.starts_with(backend) && !inside)
      problems.push_back(at(source, include.line) + include.name + " belongs to its back-end alone");
  }
  const bool plays_mpi = source.path == "test/emulation/nccl.cpp" || source.path == "test/simulation/calls_mpi.cpp";
  if (include.name == "parallel/mpi_comm.h" && room_of(source.path) != "parallel" && !plays_mpi)
    problems.push_back(at(source, include.line) + include.name + " belongs to parallel/ alone: it shows MPI");
  check_floor(source, include, problems);
}

void check_foreign(const Source& source, const Include& include, Problems& problems) {
  const auto library =
      std::find_if(kLibraries.begin(), kLibraries.end(), [&](const Library& l) { return include.name.starts_with(l.header); });
  if (library != kLibraries.end()) {
    if (!starts_with_any(source.path, library->hosts))
      problems.push_back(at(source, include.line) + include.name + " has its host in " + string(library->hosts.front()));
  } else if (include.name.find_first_of("./") != string::npos && !starts_with_any(include.name, kSystemHeaders)) {
    problems.push_back(at(source, include.line) + include.name + " is a foreign library without a host in test/house/rules.cpp");
  }
}

// Circular includes, which `#pragma once` would hide.
void check_circles(const std::map<string, std::vector<string>>& graph, Problems& problems) {
  std::map<string, int> state;  // 1: in progress, 2: done
  const std::function<void(const string&)> walk = [&](const string& file) {
    state[file] = 1;
    const auto found = graph.find(file);
    for (const string& next : found == graph.end() ? std::vector<string>{} : found->second) {
      if (state[next] == 1) problems.push_back(file + ":1: includes " + next + " in a circle");
      if (state[next] == 0) walk(next);
    }
    state[file] = 2;
  };
  for (const auto& [file, includes] : graph)
    if (state[file] == 0) walk(file);
}

}  // namespace

Problems check_arrows(const std::vector<Source>& sources) {
  Problems problems;
  std::map<string, std::vector<string>> graph;
  for (const Source& source : sources) {
    for (const Include& include : includes_of(source)) {
      include.ours ? check_ours(source, include, problems) : check_foreign(source, include, problems);
      if (include.ours) graph[source.path].push_back(include.name);
    }
  }
  check_circles(graph, problems);
  return problems;
}

}  // namespace trireme::house
