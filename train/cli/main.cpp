// The command line: parses it into the options of one command, runs that command, and turns what went wrong into a line and an exit
// code. The only catch of the program that ends it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <functional>
#include <limits>
#include <sstream>

#include "train/cli/commands.h"
#include "train/config/config.h"
#include "train/config/keys.h"
#include "train/run/supervise.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

using Command = std::function<ExitCode()>;

constexpr const char* kTokenizers =
    "A tokenizer.json, a vocab.json with merges.txt beside it, SentencePiece's FILE.model, ranks of tiktoken's (FILE.tiktoken, or "
    "FILE.tiktoken@cl100k; Llama 3's "
    "tokenizer.model), or 'bytes'";

// A whole number (digits), or any finite number, of at least `lowest` and at most `highest`. CLI11's own checks speak of doubles.
template <class Number>
CLI::Validator number(Number lowest, Number highest = std::numeric_limits<Number>::max()) {
  const std::string kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  const bool bounded = highest < std::numeric_limits<Number>::max();
  std::ostringstream range;
  bounded ? range << lowest << " to " << highest : range << "at least " << lowest;
  const auto complaint = [=, range = range.str()](const std::string& word) -> std::string {
    Number value{};
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool good = status == std::errc() && stop == word.data() + word.size() && value >= lowest && value <= highest;
    return good ? "" : "must be " + kind + ", " + range + ", not '" + word + "'";
  };
  return CLI::Validator(complaint, range.str());
}

// All commands with their options. parse() leaves the one that was chosen in `chosen`.
class CommandLine {
 public:
  CommandLine() {
    app_.name("trireme");
    app_.set_version_flag("--version", "trireme " TRIREME_VERSION);
    app_.require_subcommand(1);
    add_training();
    add_eval();
    add_data();
    add_tokenizer();
    add_checkpoint();
    add_model();
    add_bench();
    add(app_, "doctor", "What this machine and this build can do, and what is missing", run_doctor);
  }

  // ConfigError for a command that does not exist; CLI::ParseError for everything else, --help among it.
  Command parse(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    refuse_unknown_command(words);
    // What stands behind -- is not ours to read: the command that is supervised, texts to encode.
    const bool supervises = !words.empty() && words[0] == "supervise";
    const bool encodes = words.size() > 1 && words[0] == "tokenizer" && words[1] == "encode";
    if (const auto mark = std::ranges::find(words, "--"); mark != words.end() && (supervises || encodes)) {
      behind_.assign(mark + 1, words.end());
      argc = static_cast<int>(mark - words.begin()) + 1;
    }
    app_.parse(argc, argv);
    return chosen_;
  }

  std::string help() const {
    const std::string page = app_.help();
    return page.substr(0, page.find_last_not_of('\n') + 1);
  }

  // One line for a command line that CLI11 refused: "trireme data build: --output is required; see trireme data build --help".
  std::string explain(const CLI::ParseError& refused, const std::vector<std::string>& words) const {
    std::string path = app_.get_name();
    const CLI::App* level = &app_;
    while (!level->get_subcommands().empty()) {
      level = level->get_subcommands().back();
      path += " " + level->get_name();
    }
    const std::vector<std::string> commands = names_of_commands(*level);
    const bool too_little = refused.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
    if (!commands.empty() && too_little) {
      std::string all;
      for (const std::string& command : commands) all += (all.empty() ? "" : ", ") + command;
      return path + ": needs a command: " + all;
    }
    const bool too_much = refused.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    const std::string help = "see " + path + " --help";
    if (!too_little && !too_much) return path + ": " + refused.what() + "; " + help;
    std::vector<std::string> options;
    for (const CLI::Option* option : level->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (name == "--") break;
      if (!name.starts_with("--") || std::ranges::find(options, name) != options.end()) continue;
      const std::string near = nearest(name, options);
      return path + ": no option '" + name + "'; " + (near.empty() ? help : "did you mean " + near + "?");
    }
    return path + ": " + refused.what() + "; " + help;
  }

 private:
  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& about, Command command) {
    CLI::App* added = parent.add_subcommand(name, about);
    added->callback([this, command] { chosen_ = command; });
    return added;
  }

  CLI::App& add_group(const std::string& name, const std::string& about) {
    CLI::App* group = app_.add_subcommand(name, about);
    group->require_subcommand(1);
    return *group;
  }

  static void add_set(CLI::App* command, std::vector<std::string>& set) {
    command->add_option("--set", set, "A key's value, before the file's: section.key=value; may be repeated, the last one wins")
        ->allow_extra_args(false);
  }

  void add_training() {
    CLI::App* train = add(app_, "train", "Trains a model as a config says", [this] { return run_train(train_); });
    train->add_option("config", train_.config, "YAML file, such as configs/quickstart.yaml")->required();
    add_set(train, train_.set);
    train
        ->add_option("--resume", train_.resume,
                     "auto: from the run's newest valid checkpoint, if any; never; or a checkpoint's directory")
        ->capture_default_str();
    train->add_flag("--resume-allow", train_.resume_allow, "Continues although keys differ that change which run it is");
    train->footer(config_help);

    CLI::App* supervise =
        add(app_, "supervise", "Starts a training again when it fails: trireme supervise -- mpirun -n 8 trireme train config.yaml",
            [this] {
              supervise_.command = behind_;
              return run_supervise(supervise_);
            });
    supervise->add_option("--max-restarts", supervise_.max_restarts, "In a row without a new checkpoint")
        ->capture_default_str()
        ->check(number<int64_t>(0));
    supervise->add_flag("--elastic", supervise_.elastic,
                        "Goes on with fewer ranks when one fails again and again at the same place");
    supervise->footer("Behind -- stands the command, as it would be given without this.");

    CLI::App* plan = add(app_, "plan", "What a config will take: memory, FLOPs, parameters; computes nothing",
                         [this] { return run_plan(plan_); });
    plan->add_option("config", plan_.config, "YAML file")->required();
    add_set(plan, plan_.set);
    plan->add_option("--ranks", plan_.ranks, "Ranks to plan for")->capture_default_str()->check(number<int64_t>(1));
    plan->add_option("--memory", plan_.memory,
                     "Memory of a rank, as 80GB: where it does not fit, names the nearest mesh that does");
    plan->add_flag("--json", plan_.json, "Prints JSON");

    CLI::App* sample = add(app_, "sample", "Continues a text", [this] { return run_sample(sample_); });
    sample->add_option("from", sample_.from, "A run's directory, or one checkpoint's")->required();
    sample->add_option("--prompt", sample_.prompt, "The text to continue")->required();
    sample->add_option("--tokens", sample_.tokens, "Tokens to add")->capture_default_str()->check(number<int64_t>(1));
    sample->add_option("--temperature", sample_.temperature, "0: always the likeliest token")
        ->capture_default_str()
        ->check(number(0.0, 100.0));
    sample->add_option("--top-k", sample_.top_k, "Only the k likeliest tokens; 0: all")
        ->capture_default_str()
        ->check(number<int64_t>(0));
    sample->add_option("--top-p", sample_.top_p, "Only the likeliest tokens that together have this probability")
        ->capture_default_str()
        ->check(number(0.0, 1.0));
    sample->add_option("--seed", sample_.seed, "Of the random choice")->capture_default_str()->check(number<int64_t>(0));
  }

  void add_eval() {
    CLI::App* eval =
        add(app_, "eval", "Evaluates a model: perplexity and bits per byte, multiple choice", [this] { return run_eval(eval_); });
    eval->add_option(
            "from", eval_.from,
            "A run's directory, one checkpoint's, a published model's (config.json, safetensors), or a YAML file: its run, or "
            "train.init_from where that has no checkpoint")
        ->required();
    eval->add_option("--shards", eval_.shards, "Token shards, or directories of them");
    eval->add_option("--text", eval_.texts,
                     "Files, directories or patterns; a file is a document, in .jsonl a line is; .gz and .zst are unpacked");
    eval->add_option(
        "--choices", eval_.choices,
        "Questions as JSON lines: {\"context\", \"choices\", \"answer\"}, or as HellaSwag, ARC, MMLU or PIQA have them");
    eval->add_option("--field", eval_.field, "The text's field in a JSON line")->capture_default_str();
    eval->add_option("--sequences", eval_.sequences, "Of shards and of text, the first so many; 0: all")
        ->capture_default_str()
        ->check(number<int64_t>(0));
    eval->add_option(
            "--overlap", eval_.overlap,
            "Tokens of a sequence that repeat the one before and are not counted again; without: half the context, so that "
            "each token is predicted from at least as many. 0 is what training does unless train.eval_overlap says more")
        ->check(number<int64_t>(0));
    eval->add_option("--step", eval_.step, "Of a run's checkpoints that of this step")->check(number<int64_t>(0));
    eval->add_option("--json", eval_.json, "Also write what was found to this file");
    add_set(eval, eval_.set);
    eval->footer(
        "Loss is in nats per token, perplexity its exponential. Bits per byte are the loss of all tokens in bits, over the UTF-8 "
        "bytes\n"
        "of the text. In shards every token but each shard's first is predicted; in text every token is, the first one behind an\n"
        "end_of_document; the end_of_document behind each document counts as a token.\n"
        "acc: the likeliest choice is the right one. acc_norm: likewise after dividing log-likelihoods by the choices' "
        "characters.\n"
        "Under mpirun or srun each replica takes its share; the mesh is the run's own where the ranks allow it, else of replicas "
        "alone.");
  }

  void add_data() {
    CLI::App& data = add_group("data", "Token shards: builds them from text, tells what is in them, verifies them");
    CLI::App* build = add(data, "build", "Turns text files and JSONL into token shards", [this] {
      build_.skip_errors = on_error_ == "skip";
      return run_data_build(build_);
    });
    build
        ->add_option("input", build_.inputs,
                     "Files, directories or patterns; a file is a document, in .jsonl a line is; .gz and .zst are unpacked")
        ->required();
    build->add_option("--output", build_.output, "Directory of the shards")->required();
    build->add_option("--tokenizer", build_.tokenizer, kTokenizers)->required();
    CLI::Option* field = build->add_option("--field", build_.field, "The text's field in a JSON line")->capture_default_str();
    CLI::Option* prompt = build->add_option("--prompt-field", build_.prompt_field,
                                            "Of a JSON line, instead of --field: what is read, but not learnt to be written");
    CLI::Option* response = build->add_option("--response-field", build_.response_field,
                                              "What stands behind the prompt: it and the end behind it are learnt");
    CLI::Option* messages = build->add_option("--messages-field", build_.messages_field,
                                              "Of a JSON line, instead of --field: a list of {\"role\": system, user or assistant, "
                                              "\"content\"}, of which the assistant's "
                                              "content is learnt; lines <|role|> stand between them");
    prompt->needs(response)->excludes(field);
    response->needs(prompt);
    messages->excludes(field)->excludes(prompt);
    build
        ->add_option(
            "--pack", build_.pack,
            "How documents become samples: one behind the other (concatenate), or, for --context, so that none is cut that "
            "fits (best-fit)")
        ->capture_default_str()
        ->check(CLI::IsMember({"concatenate", "best-fit"}));
    build->add_option("--context", build_.context, "Tokens of a sample: model.context of the runs to come")
        ->check(number<int64_t>(2));
    build->add_option("--stdin-name", build_.stdin_name, "What the input '-' would be called as a file: stdin.txt, stdin.jsonl.zst")
        ->capture_default_str();
    build->add_option("--validation", build_.validation, "Fraction of the documents to hold out")
        ->capture_default_str()
        ->check(number(0.0, 1.0));
    build->add_option("--validation-input", build_.validation_inputs, "Files, directories or patterns to hold out whole");
    build->add_option("--shard-tokens", build_.shard_tokens, "Tokens of a shard, held in memory while it is made")
        ->capture_default_str()
        ->check(number<int64_t>(1));
    build->add_option("--threads", build_.threads, "0: all cores")->capture_default_str()->check(number<int64_t>(0, 4096));
    build->add_flag("--replace", build_.replace, "Replaces the shards that the output directory holds");
    build
        ->add_option("--on-error", on_error_,
                     "What a document that cannot be read does: it is left out (skip) or ends the build (stop)")
        ->capture_default_str()
        ->check(CLI::IsMember({"skip", "stop"}));

    CLI::App* others = add(data, "import", "Makes shards of tokens that llm.c, Megatron-LM or NumPy have written, token for token",
                           [this] { return run_data_import(import_); });
    others
        ->add_option("input", import_.inputs, "Files, directories or patterns: .bin of llm.c, .bin with .idx of Megatron-LM, .npy")
        ->required();
    others->add_option("--output", import_.output, "Directory of the shards")->required();
    others->add_option("--tokenizer", import_.tokenizer, std::string(kTokenizers) + ", by which the tokens were made")->required();
    others->add_option("--format", import_.format, "What the files are")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "llmc", "megatron", "npy"}));
    others
        ->add_option("--begin", import_.begin,
                     "The token that each document begins with; without: they end with the tokenizer's end")
        ->check(number<int64_t>(0, INT32_MAX));
    others->add_option("--split", import_.split, "What the shards are for")
        ->capture_default_str()
        ->check(CLI::IsMember({"train", "validation"}));
    others->add_option("--shard-tokens", import_.shard_tokens, "Tokens of a shard, held in memory while it is made")
        ->capture_default_str()
        ->check(number<int64_t>(1));
    others->add_flag("--replace", import_.replace, "Replaces the shards of this split that the output directory holds");

    CLI::App* info = add(data, "info", "What shards hold", [this] { return run_data_info(info_); });
    info->add_option("shards", info_.shards, "Shards, directories of them, or lists of excluded documents")->required();
    info->add_flag("--lengths", info_.lengths, "Also how long their documents are");
    info->add_option("--samples", info_.samples, "Also the text of so many documents")->check(number<int64_t>(1));
    info->add_option("--tokenizer", info_.tokenizer, std::string(kTokenizers) + ", by which samples are read");
    CLI::App* verify =
        add(data, "verify", "Reads every byte of shards against their digests", [this] { return run_data_verify(shards_); });
    verify->add_option("shards", shards_, "Shards, or directories of them")->required();
    add_ledger(data);
  }

  void add_ledger(CLI::App& data) {
    CLI::App* where = add(data, "where", "Lists the documents that a step reads, or the steps that read a document",
                          [this] { return run_data_where(where_); });
    where->add_option("from", where_.from, "A run's directory, or a config")->required();
    add_set(where, where_.set);
    where->add_option("--step", where_.step, "A step or a range of them, such as 7 or 100-120");
    where->add_option("--document", where_.document, "Lists the steps that read this one: SHARD:NUMBER");
    where->add_option("--file", where_.file, "Lists the steps that read the documents of this file, named as in 'data build'");
    where->add_option("--replica", where_.replica, "Only its rows")->check(number<int64_t>(0));
    where->add_option("--text", where_.text, "Also so many bytes of each document's text")->check(number<int64_t>(1));
    where->add_option("--tokenizer", where_.tokenizer, std::string(kTokenizers) + ", for --text; without: data.tokenizer");
    where->add_flag("--json", where_.json, "Prints JSON, a line for each row or document");

    CLI::App* exclude = add(data, "exclude", "Makes a list of documents that runs with data.exclude do not train on",
                            [this] { return run_data_exclude(exclude_); });
    exclude->add_option("from", exclude_.from, "A run's directory, whose data is meant, or shards")->required();
    exclude->add_option("--output", exclude_.output, "The list to write; 'data info' tells what it holds")->required();
    exclude->add_option("--documents", exclude_.documents, "Documents by a file of lines SHARD:NUMBER");
    exclude->add_option("--step", exclude_.step, "All documents that this step of the run reads, or a range of steps");
    exclude->add_option("--match", exclude_.match, "Documents in whose text this regular expression is found");
    exclude->add_option("--file", exclude_.file, "Documents of this file, named as in 'data build'");
    exclude->add_option("--tokenizer", exclude_.tokenizer, std::string(kTokenizers) + ", for --match; without: the run's");
    exclude->add_flag("--replace", exclude_.replace, "Replaces the output");
  }

  void add_tokenizer() {
    CLI::App& tokenizer = add_group("tokenizer", "Learns a tokenizer, and tries it");
    CLI::App* train =
        add(tokenizer, "train", "Learns byte-pair encoding from text", [this] { return run_tokenizer_train(learn_); });
    train
        ->add_option("input", learn_.inputs,
                     "Files, directories or patterns; a file is a document, in .jsonl a line is; .gz and .zst are unpacked")
        ->required();
    train->add_option("--output", learn_.output, "The tokenizer.json to write")->required();
    train->add_flag("--replace", learn_.replace, "Replaces the output");
    train->add_option("--vocab", learn_.vocab, "Entries, special tokens among them")
        ->capture_default_str()
        ->check(number<int64_t>(257, 1 << 24));
    train->add_option("--field", learn_.field, "The text's field in a JSON line")->capture_default_str();
    train->add_option("--pattern", learn_.pattern, "Whose pattern cuts text into words: gpt2, cl100k, o200k, llama3 or qwen2")
        ->capture_default_str();
    train
        ->add_option("--special", learn_.special,
                     "A special token beside <|endoftext|>, such as '<|user|>'; may be repeated. Their ids are the last")
        ->allow_extra_args(false);
    train
        ->add_option("--text-limit", learn_.text_limit,
                     "Of more text an even sample of documents is learnt from, which bounds the memory")
        ->capture_default_str();

    CLI::App* encode = add(tokenizer, "encode", "Prints the token ids of texts, a line for each", [this] {
      encode_.given = texts_to_encode();
      return run_tokenizer_encode(encode_);
    });
    encode->add_option("tokenizer", encode_.tokenizer, kTokenizers)->required();
    // Shown as what it is, but it takes no word: CLI11 would take "[1,2]" apart. texts_to_encode() has what is left over.
    encode->add_option("texts", encode_.given, "Each is a text; none: --file, else all of stdin")
        ->expected(0, std::numeric_limits<int>::max())
        ->allow_extra_args(false);
    encode->allow_extras();
    add_text_files(encode, encode_, "Each line of stdin or of a file, without its end, is a text",
                   "Each line of stdin or of a file is a JSON string, and a text");
    encode->footer(
        "A text that begins with - stands behind --, as in: trireme tokenizer encode bytes 'a text' -- '-another'\n"
        "The written form of a special token is encoded like any other text.");
    CLI::App* decode = add(tokenizer, "decode", "Prints the text of token ids", [this] { return run_tokenizer_decode(decode_); });
    decode->add_option("tokenizer", decode_.tokenizer, kTokenizers)->required();
    decode->add_option("ids", decode_.given, "Token ids; none: those of --file, else those on stdin");
    add_text_files(decode, decode_, "Each line of stdin or of a file has the ids of a text, and gives a line",
                   "Likewise, each text as a JSON string: what is not UTF-8 becomes U+FFFD");
    decode->footer("decode --lines gives back the lines that encode --lines was given, decode --json-lines the strings.");
  }

  static void add_text_files(CLI::App* command, TokenizerTextOptions& options, const std::string& lines,
                             const std::string& json_lines) {
    command->add_option("--file", options.files, "A file is a text; may be repeated; .gz and .zst are unpacked; -: stdin")
        ->allow_extra_args(false);
    command->add_flag("--lines", options.lines, lines)->excludes(command->add_flag("--json-lines", options.json_lines, json_lines));
  }

  // CLI::ExtrasError for an option that does not exist.
  std::vector<std::string> texts_to_encode() const {
    std::vector<std::string> texts = app_.get_subcommand("tokenizer")->get_subcommand("encode")->remaining();
    for (const std::string& word : texts)
      if (word.size() > 1 && word.starts_with('-')) throw CLI::ExtrasError("encode", {word});
    texts.insert(texts.end(), behind_.begin(), behind_.end());
    return texts;
  }

  void add_checkpoint() {
    CLI::App& checkpoint = add_group("checkpoint", "What checkpoints hold, and whether they are whole");
    CLI::App* list = add(checkpoint, "list", "Lists the checkpoints of a run", [this] { return run_checkpoint_list(from_); });
    list->add_option("run", from_, "A run's directory")->required();
    CLI::App* verify =
        add(checkpoint, "verify", "Reads every byte against its digests", [this] { return run_checkpoint_verify(from_); });
    verify->add_option("from", from_, "A run's directory, or one checkpoint's")->required();
    CLI::App* diff =
        add(checkpoint, "diff", "Whether two checkpoints hold the same state", [this] { return run_checkpoint_diff(from_, to_); });
    diff->add_option("a", from_, "A checkpoint, or a run: its newest")->required();
    diff->add_option("b", to_, "Another")->required();
  }

  void add_model() {
    CLI::App& model = add_group(
        "model",
        "To and from the formats in which models are published; `train` begins with one by train.init_from, `eval` takes it as "
        "it is");
    CLI::App* to = add(model, "export",
                       "Writes a checkpoint as config.json, safetensors and tokenizer files, for transformers "
                       "and vLLM",
                       [this] { return run_model_export(export_); });
    to->add_option("from", export_.from, "A run's directory, or one checkpoint's")->required();
    to->add_option("output", export_.output, "A directory; made if need be")->required();
    to->add_option("--dtype", export_.dtype, "Of the weights; without: kernels.dtype of the run")
        ->check(CLI::IsMember({"f32", "bf16"}));
    to->add_option("--file-size", export_.file_size, "Of a file, at most, where there are several")->capture_default_str();
    to->add_option("--tokenizer", export_.tokenizer, "Instead of the run's data.tokenizer; none: without one");
    to->add_flag("--replace", export_.replace, "Replace the model that the output directory holds");
    CLI::App* config =
        add(model, "config", "Prints a config that trains on from a published model", [this] { return run_model_config(from_); });
    config->add_option("directory", from_, "That holds its config.json")->required();
  }

  void add_bench() {
    CLI::App& bench = add_group("bench", "Times, beside what this machine can do");
    CLI::App* kernels = add(bench, "kernels", "Each op: time, rate, share of the measured copy or product rate",
                            [this] { return run_bench_kernels(bench_); });
    kernels->add_option("--only", bench_.only, "Only ops whose name contains this");
    kernels->add_flag("--cuda", bench_.cuda, "Those of the GPU");
    CLI::App* step = add(bench, "step", "One training step of a config, op by op", [this] { return run_bench_step(bench_); });
    step->add_option("config", bench_.config, "YAML file")->required();
    step->add_option("--json", bench_.json, "Also write what was measured to this file");
    add_set(step, bench_.set);
    CLI::App* save = add(bench, "save", "What saving costs the steps of a config, beside this disk and memory",
                         [this] { return run_bench_save(bench_); });
    save->add_option("config", bench_.config, "YAML file")->required();
    save->add_option("--rounds", bench_.rounds, "Pairs of steps with a save and steps without (8)")->check(CLI::Range(2, 1000));
    add_set(save, bench_.set);
    CLI::App* tokenizer = add(bench, "tokenizer", "Text to tokens and back, by one thread and by all",
                              [this] { return run_bench_tokenizer(bench_); });
    tokenizer->add_option("tokenizer", bench_.tokenizer, kTokenizers)->required();
    tokenizer->add_option("inputs", bench_.inputs, "Text: files, directories, patterns")->required();
    tokenizer->add_option("--field", bench_.field, "Of a JSON line (text)");
    tokenizer->add_option("--rounds", bench_.rounds, "Times each is done (8)")->check(CLI::Range(1, 1000));
    CLI::App* data = add(bench, "data", "Token shards read in their order and shuffled, beside the page cache and the disk",
                         [this] { return run_bench_data(bench_); });
    data->add_option("shards", bench_.inputs, "Shards: files, directories, patterns")->required();
    data->add_option("--context", bench_.context, "Tokens of a sample (1024)")->check(number<int64_t>(1, 1 << 30));
    data->add_option("--batch", bench_.batch, "Samples of a step (64)")->check(number<int64_t>(1, 1 << 30));
    data->add_option("--rounds", bench_.rounds, "Times each is done (8)")->check(CLI::Range(1, 1000));
  }

  static std::vector<std::string> names_of_commands(const CLI::App& level) {
    std::vector<std::string> names;
    for (const CLI::App* command : level.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
    return names;
  }

  // CLI11 would only say that a command is required.
  void refuse_unknown_command(const std::vector<std::string>& words) {
    const CLI::App* level = &app_;
    std::string path = app_.get_name();
    for (const std::string& word : words) {
      const std::vector<std::string> names = names_of_commands(*level);
      if (names.empty() || word.starts_with('-')) return;
      if (std::ranges::find(names, word) == names.end()) {
        const std::string near = nearest(word, names);
        throw ConfigError(path + ": no command '" + word + "'; " +
                          (near.empty() ? "see " + path + " --help" : "did you mean " + near + "?"));
      }
      level = level->get_subcommand(word);
      path += " " + word;
    }
  }

  CLI::App app_{"Pretrains transformers: text in, checkpoints out."};
  Command chosen_;
  TrainOptions train_;
  SuperviseOptions supervise_;
  PlanOptions plan_;
  SampleOptions sample_;
  EvalOptions eval_;
  ModelExportOptions export_;
  DataBuildOptions build_;
  DataImportOptions import_;
  DataInfoOptions info_;
  DataWhereOptions where_;
  DataExcludeOptions exclude_;
  TokenizerTrainOptions learn_;
  BenchOptions bench_;
  TokenizerTextOptions encode_, decode_;
  std::vector<std::string> shards_, behind_;  // behind_: --
  std::string on_error_ = "stop", from_, to_;
};

int ended(ExitCode code, std::string_view line) {
  complain(line);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  CommandLine line;
  try {
    return static_cast<int>(line.parse(argc, argv)());
  } catch (const CLI::CallForHelp&) {
    say(line.help());
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::CallForVersion& e) {
    say(e.what());
    return static_cast<int>(ExitCode::done);
  } catch (const CLI::ParseError& e) {
    return ended(ExitCode::usage, line.explain(e, {argv + 1, argv + argc}));
  } catch (const Error& e) {
    return ended(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return ended(ExitCode::internal, "out of memory");
  } catch (const std::exception& e) {
    return ended(ExitCode::internal, std::string("unexpected: ") + e.what());
  }
}
