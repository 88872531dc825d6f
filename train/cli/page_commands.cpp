// trireme man, completion: pages made from the tree of all commands.
#include "train/cli/command_tree.h"
#include "train/cli/completion.h"
#include "train/cli/man_page.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct ManOptions {
  static constexpr auto name = "man";
  static constexpr auto about = "Print the man page, as troff: trireme man > trireme.1; man ./trireme.1";
  void visit(Options&) {}
};

struct CompletionOptions {
  static constexpr auto name = "completion";
  static constexpr auto about = "Print a shell's completion script";
  std::string shell;
  void visit(Options& o) { o("shell", shell, "Shell: bash, zsh or fish").one_of({"bash", "zsh", "fish"}).required(); }
  static std::string footer() {
    return "bash: source <(trireme completion bash)\n"
           "zsh:  source <(trireme completion zsh)     # after compinit\n"
           "fish: trireme completion fish | source";
  }
};

}  // namespace

std::unique_ptr<Command> man_command(AllCommands all) {
  return make_command<ManOptions>([all](const ManOptions&) {
    const auto commands = all();
    say_part(man_page(command_tree(commands)));
    return ExitCode::done;
  });
}

std::unique_ptr<Command> completion_command(AllCommands all) {
  return make_command<CompletionOptions>([all](const CompletionOptions& options) {
    const auto commands = all();
    const CommandNode root = command_tree(commands);
    say_part(options.shell == "bash"  ? bash_completion(root)
             : options.shell == "zsh" ? zsh_completion(root)
                                      : fish_completion(root));
    return ExitCode::done;
  });
}

}  // namespace trireme
