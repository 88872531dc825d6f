// A tokenizer's files: which kind they are of, and what those beside them say.
#include "data/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "data/tokenizer_bpe.h"
#include "kernels/check.h"
#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

using Json = nlohmann::json;

const std::string kGoldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";

std::string refusal_of(const std::string& path) {
  try {
    open_tokenizer(path);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

// gpt2.json with these special tokens, whose ids follow the others'.
Json with_special(const std::vector<std::string>& special) {
  Json tokenizer = Json::parse(read_text(kGoldens + "gpt2.json"));
  tokenizer["model"]["vocab"].erase(kEndOfText);
  tokenizer["model"]["vocab"]["<unused>"] = 0;
  tokenizer["added_tokens"] = Json::array();
  for (size_t i = 0; i < special.size(); ++i)
    tokenizer["added_tokens"].push_back({{"id", 480 + i}, {"content", special[i]}, {"special", true}});
  return tokenizer;
}

}  // namespace

TEST_CASE("tokenizer_config.json says which special token ends documents, else one of the known names does") {
  const Scratch scratch;
  const std::string path = scratch / "tokenizer.json", config = scratch / "tokenizer_config.json";
  const auto end = [&] { return open_tokenizer(path)->end_of_document(); };
  write_text(path, with_special({"<eos>", "</s>", kEndOfText, "<end>"}).dump());
  CHECK(end() == 482);
  for (const auto& [said, id] :
       std::vector<std::pair<Json, int32_t>>{{Json::object(), 482},
                                             {{{"eos_token", nullptr}}, 482},
                                             {{{"eos_token", "<eos>"}}, 480},
                                             {{{"eos_token", "</s>"}}, 481},
                                             {{{"eos_token", {{"content", "<end>"}, {"lstrip", false}}}}, 483},
                                             {{{"eos_token", "the"}}, 482}}) {
    INFO(said);
    write_text(config, said.dump());
    CHECK(end() == id);
  }
  for (const std::string wrong : {R"({"eos_token": 7})", R"({"eos_token": {"text": "</s>"}})", "[]", "{"}) {
    write_text(config, wrong);
    CHECK_THAT(refusal_of(path), ContainsSubstring(config + ": "));
  }
  write_text(path, with_special({"<eos>", "<bos>"}).dump());
  write_text(config, R"({"eos_token": "<fin>"})");
  CHECK_THAT(refusal_of(path), ContainsSubstring(path + ": has none of the special tokens '<fin>', '<|endoftext|>', ") &&
                                   ContainsSubstring("{\"eos_token\": \"...\"} in a tokenizer_config.json beside it") &&
                                   ContainsSubstring("\"<bos>\", \"<eos>\""));
}
