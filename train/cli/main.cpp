// The program: runs the command of the command line, and turns errors into a line and an exit code. Holds the only catch that ends
// it.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <string_view>

#include "base/openmp_start.h"
#include "train/cli/command_line.h"
#include "train/health/last_words.h"
#include "train/health/launcher_shield.h"
#include "train/health/signals.h"
#include "train/telemetry/log.h"

namespace trireme {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make : {init_command,
                          train_command,
                          supervise_command,
                          plan_command,
                          watch_command,
                          report_command,
                          sample_command,
                          chat_command,
                          eval_command,
                          data_build_command,
                          data_import_command,
                          data_info_command,
                          data_verify_command,
                          data_where_command,
                          data_exclude_command,
                          tokenizer_train_command,
                          tokenizer_encode_command,
                          tokenizer_decode_command,
                          checkpoint_list_command,
                          checkpoint_verify_command,
                          checkpoint_diff_command,
                          config_schema_command,
                          model_export_command,
                          model_config_command,
                          bench_kernels_command,
                          bench_step_command,
                          bench_save_command,
                          bench_tokenizer_command,
                          bench_data_command,
                          bench_fabric_command,
                          doctor_command,
                          version_command,
                          help_command})
    commands.push_back(make());
  commands.push_back(man_command(all_commands));
  commands.push_back(completion_command(all_commands));
  return commands;
}

namespace {

bool saves_when_asked_to_stop(std::string_view command) { return command == "train" || command == "supervise"; }

int run_program(int argc, char** argv) {
  const std::vector<std::unique_ptr<Command>> commands = all_commands();
  const Request request = parse_command_line(commands, argc, argv);
  if (request.command != nullptr) return static_cast<int>(request.command->run());
  request.code == ExitCode::done ? say(request.answer) : complain(request.answer);
  return static_cast<int>(request.code);
}

int ended(ExitCode code, std::string_view line) {
  complain(line);
  return static_cast<int>(code);
}

// Constructors of other files may run out of memory, too.
[[gnu::constructor(101)]] void begin() { watch_fatal_ends(); }

}  // namespace
}  // namespace trireme

// The only allocator that leaves errno alone. oneDNN uses it, and does not survive its failure.
extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  using Real = int(void**, size_t, size_t);
  static Real* const real = reinterpret_cast<Real*>(dlsym(RTLD_NEXT, "posix_memalign"));
  const int error = real(memory, alignment, size);
  if (error == ENOMEM) trireme::note_failed_allocation();
  return error;
}

// OpenMP's end without memory or a thread. Last words come before destructors, amid which other threads would crash.
extern "C" [[noreturn]] void exit(int code) noexcept {
  trireme::judge_exit(code);
  using Real = void(int);
  static Real* const real = reinterpret_cast<Real*>(dlsym(RTLD_NEXT, "exit"));
  real(code);
  __builtin_unreachable();
}

// Open MPI's end before a start is complete, with code 1.
extern "C" [[noreturn]] void _exit(int code) {
  if (code == 1) trireme::judge_exit(code);
  for (;;) syscall(SYS_exit_group, code);
}

int main(int argc, char** argv) {
  using namespace trireme;
  // A request counts from the program's first moment, long before MPI has started.
  const std::string_view command = argc > 1 ? argv[1] : "";
  const bool saves = saves_when_asked_to_stop(command);
  if (saves) hold_signals();
  settle_openmp(argv);
  if (command == "train") shield_from_launcher();
  if (saves) watch_signals();
  try {
    return run_program(argc, argv);
  } catch (const std::exception& e) {
    return ended(code_of(e), describe_failure(e));
  }
}
