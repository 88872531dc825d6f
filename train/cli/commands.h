// The commands of the program, one function each. main.cpp parses the command line into these options and calls one of them.
//
// A command returns how it ended or throws an Error with its exit code; it prints through train/telemetry/log.h.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace trireme {

struct TrainOptions {
  std::string config;
  std::vector<std::string> set;  // "section.key=value"
  std::string resume = "auto";   // auto: from the run's newest valid checkpoint, if any; never; or a checkpoint's directory
  bool resume_allow = false;     // continue although keys differ that change which run it is
};
ExitCode run_train(const TrainOptions& options);

struct PlanOptions {
  std::string config;
  std::vector<std::string> set;
  int64_t ranks = 1;
  std::string memory;  // of a rank, "80GB"; empty: any
  bool json = false;
};
ExitCode run_plan(const PlanOptions& options);

struct SampleOptions {
  std::string from;  // a run directory or a checkpoint's
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // 0: all
  double top_p = 1;
  int64_t seed = 1;
};
ExitCode run_sample(const SampleOptions& options);

struct EvalOptions {
  std::string from;  // a run's directory, a checkpoint's, or a config
  std::vector<std::string> set;
  int64_t step = -1;                                // of a run; -1: its newest checkpoint
  std::vector<std::string> shards, texts, choices;  // files, directories, patterns
  std::string field = "text";                       // of JSON lines among the texts
  int64_t sequences = 0;                            // of shards and of texts, each; 0: all
  int64_t overlap = -1;                             // tokens; -1: half the context
  std::string json;                                 // a file for what was found
};
ExitCode run_eval(const EvalOptions& options);

struct ModelExportOptions {
  std::string from, output;  // a run directory or a checkpoint's; a directory
  std::string dtype;         // "f32", "bf16"; empty: kernels.dtype
  std::string file_size = "5GB";
  std::string tokenizer;  // as data.tokenizer, or "none"; empty: that
  bool replace = false;   // a model that the output directory holds
};
ExitCode run_model_export(const ModelExportOptions& options);
ExitCode run_model_config(const std::string& directory);

struct DataBuildOptions {
  std::vector<std::string> inputs, validation_inputs;
  std::string output, tokenizer;  // tokenizer: a tokenizer.json or "bytes"
  std::string field = "text";     // of JSONL lines
  std::string stdin_name = "stdin.jsonl";
  double validation = 0;  // fraction of the documents of `inputs`
  int64_t shard_tokens = 1 << 26;
  int64_t threads = 0;       // 0: all cores
  bool skip_errors = false;  // a document that cannot be read is left out instead of ending the build
  bool replace = false;      // shards that the output directory holds
  std::string prompt_field, response_field, messages_field;  // of JSONL lines, instead of `field`
  std::string pack = "concatenate";                          // or "best-fit"
  int64_t context = 0;                                       // to pack for, or to say how many documents it cuts
};
ExitCode run_data_build(const DataBuildOptions& options);

struct DataImportOptions {
  std::vector<std::string> inputs;
  std::string output, tokenizer, format = "auto", split = "train";
  int64_t begin = -1;  // the token that each document begins with
  int64_t shard_tokens = 1 << 26;
  bool replace = false;
};
ExitCode run_data_import(const DataImportOptions& options);
struct DataInfoOptions {
  std::vector<std::string> shards;
  bool lengths = false;   // of documents
  int64_t samples = 0;    // documents whose text is shown, by
  std::string tokenizer;  // this one
};
ExitCode run_data_info(const DataInfoOptions& options);
struct DataWhereOptions {
  std::string from;  // a run's directory, or a config
  std::vector<std::string> set;
  std::string step;            // "7" or "100-120"; or the steps that read
  std::string document, file;  // this: SHARD:NUMBER; all that came from a file
  int64_t replica = -1;        // -1: all
  int64_t text = 0;            // bytes of each document's text, by
  std::string tokenizer;       // this; empty: data.tokenizer
  bool json = false;
};
ExitCode run_data_where(const DataWhereOptions& options);

struct DataExcludeOptions {
  std::vector<std::string> from;  // a run's directory, or shards
  std::string output;
  std::string documents, step, match, file;  // a list of SHARD:NUMBER; steps of the run; a regular expression; a source
  std::string tokenizer;                     // for `match`; empty: the run's
  bool replace = false;
};
ExitCode run_data_exclude(const DataExcludeOptions& options);
ExitCode run_data_verify(const std::vector<std::string>& shards);

struct TokenizerTrainOptions {
  std::vector<std::string> inputs;
  std::string output, field = "text", pattern = "gpt2", text_limit = "1GiB";
  std::vector<std::string> special;
  int64_t vocab = 4096;
  bool replace = false;
};
ExitCode run_tokenizer_train(const TokenizerTrainOptions& options);
struct TokenizerTextOptions {
  std::string tokenizer;
  std::vector<std::string> given;  // texts, or token ids that are one text; none: those of the files
  std::vector<std::string> files;  // each a text; none: stdin
  bool lines = false;              // each line of a file is a text
  bool json_lines = false;         // likewise, as a JSON string
};
ExitCode run_tokenizer_encode(const TokenizerTextOptions& options);
ExitCode run_tokenizer_decode(const TokenizerTextOptions& options);

ExitCode run_checkpoint_list(const std::string& run);
// Of a run's directory every checkpoint; CheckpointError's code when one is damaged.
ExitCode run_checkpoint_verify(const std::string& run_or_checkpoint);
// CheckpointError that says where the states differ. Of a run's directory, its newest checkpoint.
ExitCode run_checkpoint_diff(const std::string& a, const std::string& b);

struct BenchOptions {
  std::string config;  // of `bench step` and `bench save`
  std::vector<std::string> set;
  std::string only;                       // of `bench kernels`: ops whose name contains it
  bool cuda = false;                      // of `bench kernels`: on the GPU
  std::string json;                       // of `bench step`: a file for what was measured
  int64_t rounds = 8;                     // of `bench save`, `bench tokenizer` and `bench data`
  std::string tokenizer, field = "text";  // of `bench tokenizer`
  std::vector<std::string> inputs;        // and its text; shards of `bench data`
  int64_t context = 1024, batch = 64;     // of `bench data`
};
ExitCode run_bench_kernels(const BenchOptions& options);
ExitCode run_bench_step(const BenchOptions& options);
ExitCode run_bench_save(const BenchOptions& options);
ExitCode run_bench_tokenizer(const BenchOptions& options);
ExitCode run_bench_data(const BenchOptions& options);

ExitCode run_doctor();

}  // namespace trireme
