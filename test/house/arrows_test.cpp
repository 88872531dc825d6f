#include <fstream>
#include <sstream>

#include "test/catch.h"
#include "test/house/rules.h"

using namespace trireme::house;

namespace {

std::string joined(const Problems& problems) {
  std::string all;
  for (const std::string& problem : problems) all += problem + "\n";
  return all;
}

// The problems that each rule reports for a file planted at `path`.
std::string arrows(const std::string& path, const std::string& text) { return joined(check_arrows({{path, text}})); }
std::string words(const std::string& path, const std::string& text) { return joined(check_words({{path, text}})); }
std::string names(const std::string& path, const std::string& text) { return joined(check_names({{path, text}})); }

const std::string kHeader = "// Promises.\n#pragma once\n";

}  // namespace

TEST_CASE("the house keeps its own rules") {
  const std::vector<Source> house = read_house(TRIREME_SOURCE);
  REQUIRE(house.size() > 30);
  CHECK(joined(check_arrows(house)) == "");
  CHECK(joined(check_words(house)) == "");
  CHECK(joined(check_names(house)) == "");
}

TEST_CASE("ARCHITECTURE.md names every room and no file that is not there") {
  std::ifstream in(std::string(TRIREME_SOURCE) + "/ARCHITECTURE.md");
  std::ostringstream page;
  page << in.rdbuf();
  REQUIRE(in);
  CHECK(joined(check_page(read_house(TRIREME_SOURCE), page.str())) == "");
}

TEST_CASE("a room includes only what its row of the table allows") {
  const auto [from, to] = GENERATE(table<std::string, std::string>({{"base/x.cpp", "kernels/tensor.h"},
                                                                    {"kernels/x.cpp", "parallel/mesh.h"},
                                                                    {"parallel/x.h", "model/stage.h"},
                                                                    {"data/x.cpp", "parallel/tensor_slice.h"},
                                                                    {"data/x.cpp", "model/config.h"},
                                                                    {"model/stage.h", "data/loader/loader.h"},
                                                                    {"model/stage.h", "train/config/config.h"},
                                                                    {"checkpoint/x.cpp", "model/stage.h"},
                                                                    {"checkpoint/x.cpp", "data/loader/loader.h"},
                                                                    {"checkpoint/x.cpp", "train/telemetry/log.h"},
                                                                    {"test/data/x_test.cpp", "model/config.h"},
                                                                    {"test/reference/x.cpp", "model/stage.h"},
                                                                    {"train/x.cpp", "test/catch.h"}}));
  CAPTURE(from, to);
  CHECK_THAT(arrows(from, "\n#include \"" + to + "\"\n"), ContainsSubstring(from + ":2: ") && ContainsSubstring(to));
}

TEST_CASE("the arrows of the table are allowed") {
  const auto [from, to] = GENERATE(table<std::string, std::string>({{"parallel/x.h", "kernels/tensor.h"},
                                                                    {"model/stage.h", "parallel/tensor_slice.h"},
                                                                    {"checkpoint/x.cpp", "data/shard/hdf5_file.h"},
                                                                    {"train/x.cpp", "checkpoint/checkpoints.h"},
                                                                    {"test/data/x_test.cpp", "data/loader/loader.h"},
                                                                    {"test/train/x_test.cpp", "model/stage.h"},
                                                                    {"kernels/cpu/x.cpp", "kernels/cpu/simd.h"},
                                                                    {"kernels/cpu/x.cpp", "kernels/ops/x.h"},
                                                                    {"kernels/ops/x.h", "kernels/run.h"},
                                                                    {"kernels/device.cpp", "kernels/device.h"},
                                                                    {"base/x.cpp", "base/error.h"},
                                                                    {"data/build/x.cpp", "data/shard/shard.h"},
                                                                    {"train/run/x.cpp", "train/run/loop.h"},
                                                                    {"train/run/x.cpp", "train/step/step.h"}}));
  CAPTURE(from, to);
  CHECK(arrows(from, "#include \"" + to + "\"\n") == "");
}

TEST_CASE("inside a room includes point down") {
  const auto [from, to] = GENERATE(table<std::string, std::string>({{"kernels/tensor.h", "kernels/stream.h"},
                                                                    {"kernels/run.h", "kernels/ops/matmul.h"},
                                                                    {"kernels/device.cpp", "kernels/ops/matmul.h"},
                                                                    {"kernels/ops/rope.h", "kernels/ops/matmul.h"},
                                                                    {"kernels/ops/rope.h", "kernels/cpu/simd.h"},
                                                                    {"kernels/cpu/x.cpp", "kernels/cuda/tile.cuh"},
                                                                    {"kernels/cuda/x.cu", "kernels/cpu/simd.h"},
                                                                    {"model/stage.cpp", "kernels/cpu/simd.h"},
                                                                    {"model/attention.h", "model/block.h"},
                                                                    {"model/mlp.cpp", "model/attention.h"},
                                                                    {"model/config.h", "model/part.h"},
                                                                    {"data/text/x.cpp", "data/tokenizer/tokenizer.h"},
                                                                    {"data/shard/x.h", "data/documents/documents.h"},
                                                                    {"data/build/x.cpp", "data/loader/loader.h"},
                                                                    {"train/telemetry/x.cpp", "train/health/watchdog.h"},
                                                                    {"train/step/x.cpp", "train/run/loop.h"},
                                                                    {"train/run/x.h", "train/cli/commands.h"}}));
  CAPTURE(from, to);
  CHECK_THAT(arrows(from, "#include \"" + to + "\"\n"), ContainsSubstring(to));
}

TEST_CASE("a header without a floor is refused until the table names it") {
  CHECK_THAT(arrows("model/stage.h", "#include \"model/new_thing.h\"\n"), ContainsSubstring("has no floor"));
}

TEST_CASE("headers that include each other are found") {
  const Problems problems = check_arrows({{"train/a.h", "#include \"train/b.h\"\n"}, {"train/b.h", "#include \"train/a.h\"\n"}});
  CHECK_THAT(joined(problems), ContainsSubstring("in a circle"));
}

TEST_CASE("a foreign library is included by its host alone") {
  const auto header =
      GENERATE(as<std::string>{}, "cuda_runtime.h", "cublasLt.h", "nccl.h", "oneapi/dnnl/dnnl.hpp", "mpi.h", "hdf5.h", "pcre2.h",
               "yaml-cpp/yaml.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "catch2/catch.hpp", "omp.h", "xxhash.h");
  CAPTURE(header);
  CHECK_THAT(arrows("model/stage.cpp", "#include <" + header + ">\n"), ContainsSubstring(header + " has its host in "));
}

TEST_CASE("MPI stays in its room") {
  CHECK_THAT(arrows("train/run/trainer.cpp", "#include \"parallel/mpi_comm.h\"\n"),
             ContainsSubstring("belongs to parallel/ alone"));
  CHECK(arrows("parallel/host_collectives.cpp", "#include \"parallel/mpi_comm.h\"\n") == "");
}

TEST_CASE("hosts include their library, and everybody the standard library") {
  CHECK(arrows("data/shard/hdf5_file.cpp", "#include <hdf5.h>\n") == "");
  CHECK(arrows("kernels/cuda/facts.cu", "#include <cuda_runtime.h>\n") == "");
  CHECK(arrows("model/stage.cpp", "#include <vector>\n#include <sys/stat.h>\n#include <unistd.h>\n") == "");
}

TEST_CASE("an unknown foreign library is refused until the table gives it a host") {
  CHECK_THAT(arrows("data/x.cpp", "# include <brotli/decode.h>\n"), ContainsSubstring("without a host"));
  CHECK_THAT(arrows("data/x.cpp", "#include <boost/fiber>\n"), ContainsSubstring("without a host"));
}

TEST_CASE("words that have one place are refused elsewhere") {
  const auto line =
      GENERATE(as<std::string>{}, "std::cout << 1;", "std::cerr << 1;", "printf(\"x\");", "std::fprintf(stderr, \"x\");",
               "puts(\"x\");", "write(STDERR_FILENO, p, 1);", "std::getenv(\"HOME\");", "auto* p = new int;",
               "std::shared_ptr<int> p;", "auto p = std::make_shared<int>(1);", "std::exit(1);", "exit (1);", "std::abort();",
               "#ifdef __CUDACC__", "std::ifstream in(path);", "std::istringstream in(text);", "  #  if WITH_CUDA", "#elif X",
               "#define MAX 3", "f();  // TODO: more", "using namespace std;");
  CAPTURE(line);
  CHECK_THAT(words("model/stage.cpp", "int a;\n" + line + "\n"), ContainsSubstring("model/stage.cpp:2: "));
}

TEST_CASE("words stand where their place is, in comments, in strings and inside other words") {
  CHECK(words("train/telemetry/log.cpp", "std::cout << 1;\nstd::fprintf(stderr, \"x\");\n") == "");
  CHECK(words("parallel/world.cpp", "std::getenv(\"PMIX_RANK\");\n") == "");
  CHECK(words("kernels/cpu/matmul.cpp", "#if DNNL_VERSION_MAJOR >= 3\n#else\n#endif\n") == "");
  CHECK(words("model/stage.cpp",
              "// a new thing may exit(1) to stdout\nf(\"new stdout exit(1)\");\n/* new\n new */ int renew, newest;\n") == "");
  CHECK(words("model/stage.cpp",
              "auto html = R\"(<p> \" new printf( )\";\nstd::snprintf(a, 1, \"\"); on_exit(1); int n = 1'000;\n") == "");
}

TEST_CASE("refused words after a string, a comment or a character are still found") {
  const auto line = GENERATE(as<std::string>{}, "f(\"\\\"\"); new int;", "f('\"'); new int;", "/* x */ new int;",
                             "f(R\"x()\")x\"); new int;", "int n = 1'000 + *new int + '\\'';");
  CAPTURE(line);
  CHECK_THAT(words("model/stage.cpp", line), ContainsSubstring("'new'"));
}

TEST_CASE("names of files and shapes of headers are held") {
  CHECK(names("model/stage.h", kHeader) == "");
  CHECK_THAT(names("model/Stage.h", kHeader), ContainsSubstring("snake_case"));
  CHECK_THAT(names("model/block-2.cpp", ""), ContainsSubstring("snake_case"));
  CHECK_THAT(names("model/utils.h", kHeader), ContainsSubstring("not 'utils'"));
  CHECK_THAT(names("model/common/stage.h", kHeader), ContainsSubstring("not 'common'"));
  CHECK_THAT(names("model/stage.h", "#pragma once\n"), ContainsSubstring("opens with its promise"));
  CHECK_THAT(names("model/stage.h", "// Promises.\n"), ContainsSubstring("#pragma once is missing"));
  CHECK_THAT(names("model/stage.cpp", "// " + std::string(130, 'x')), ContainsSubstring("133 columns"));
  CHECK(names("model/stage.cpp", "// " + std::string(128, 'x') + "\u00e9") == "");
  CHECK(names("model/stage.cpp", "f(R\"(\n" + std::string(140, 'x') + "\n)\");\ng(\"" + std::string(140, 'x') + "\");\n") == "");
}

TEST_CASE("names of tests are sentences, each given once") {
  CHECK(names("test/data/x_test.cpp", "TEST_CASE(\"the order is a permutation\") {\n") == "");
  CHECK_THAT(names("test/data/x_test.cpp", "TEST_CASE(\"order\") {\n"), ContainsSubstring("is a sentence"));
  CHECK_THAT(names("test/data/x_test.cpp", "TEST_CASE(\"the order is right; and stays\") {\n"), ContainsSubstring("is words"));
  CHECK_THAT(names("test/data/x_test.cpp", "TEST_CASE(\"the order is right.\") {\n"), ContainsSubstring("no full stop"));
  const std::string test = "TEST_CASE(\"the order is right\") {\n";
  CHECK_THAT(joined(check_names({{"test/data/a_test.cpp", test}, {"test/data/b_test.cpp", test}})),
             ContainsSubstring("second test"));
  CHECK(joined(check_names({{"test/data/a_test.cpp", test}, {"test/model/b_test.cpp", test}})) == "");
}

TEST_CASE("two constants of one name in the sources of a room are found") {
  const auto twice = [](const std::string& a, const std::string& b) {
    return joined(check_names({{"train/run/a.cpp", "constexpr int kMost = 3;\nconst int kBlocks = 2, kLeast[] = {1};\n"}, {a, b}}));
  };
  CHECK_THAT(twice("train/cli/b.cpp", "\nconstexpr double kLeast = 1;\n"),
             ContainsSubstring("train/cli/b.cpp:2: a second constant kLeast in this room; the first is in train/run/a.cpp"));
  CHECK_THAT(twice("train/cli/b.cpp", "constexpr double kFirst = 1, kMost = kFirst;\n"),
             ContainsSubstring("a second constant kMost"));
  CHECK(twice("train/cli/b.cpp", "constexpr int kBlock = kMost;\n  constexpr int kMost = 1;\n") == "");
  CHECK(twice("model/b.cpp", "constexpr int kMost = 1;\n") == "");
}

TEST_CASE("two types of one name in one namespace are found") {
  const auto twice = [](const std::string& a, const std::string& b) {
    return joined(check_names({{"kernels/a.h", kHeader + a}, {"train/b.h", kHeader + b}}));
  };
  const std::string graph = "namespace trireme {\nclass Graph {\n};\n";
  CHECK_THAT(twice(graph, graph), ContainsSubstring("train/b.h:4: a second type Graph; the first is in kernels/a.h"));
  CHECK_THAT(twice(graph, "namespace trireme {\nstruct Graph : Base {\n};\n"), ContainsSubstring("a second type Graph"));
  CHECK(twice(graph, "namespace trireme {\nclass Graph;\nstruct Graphs {\n};\n") == "");
  CHECK(twice(graph, "namespace trireme::other {\nclass Graph {\n};\n") == "");
}

TEST_CASE("a page that misses a room or names a file too many is found") {
  const std::vector<Source> house{{"model/block.h", kHeader}, {"model/block.cpp", ""}, {"train/cli/main.cpp", ""}};
  CHECK(joined(check_page(house, "`model/` has `block.h`, `train/` has `cli/` with `cli/main.cpp`; new ones are `x.h`.\n")) == "");
  CHECK_THAT(joined(check_page(house, "`block.h` and `train/`, `cli/`\n")), ContainsSubstring("the room model/ is not named"));
  CHECK_THAT(joined(check_page(house, "`model/` and `train/`\n")), ContainsSubstring("the room cli/ is not named"));
  CHECK_THAT(joined(check_page(house, "`model/`, `train/cli/`: `plan.h`\n")), ContainsSubstring("names plan.h"));
}
