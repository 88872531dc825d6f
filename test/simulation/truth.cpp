#include "test/simulation/truth.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace trireme::simulation {

namespace {

constexpr int64_t kLongOperation = 60;  // calls that one commit or deletion makes after it has checked the lock
constexpr int64_t kGiveUp = 3;          // attempts without progress before supervise may give up

// The step of "PREFIX/step-00000012"; -1: another path.
int64_t step_at(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return -1;
  path.remove_prefix(prefix.size());
  constexpr std::string_view kStep = "/step-";
  if (!path.starts_with(kStep) || path.size() != kStep.size() + 8) return -1;
  int64_t step = -1;
  const auto [end, error] = std::from_chars(path.data() + kStep.size(), path.data() + path.size(), step);
  return error == std::errc() && end == path.data() + path.size() ? step : -1;
}

}  // namespace

Truth::Truth(World& world, std::string run) : world_(world), run_(std::move(run)), checkpoints_(run_ + "/checkpoints") {
  world_.watch = [this](const char* call, const std::string& from, const std::string& to) { changed(call, from, to); };
  world_.looked = [this](const std::string& path) {
    if (path == run_ + "/lock") checked_lock();
  };
}

void Truth::require(int number, bool holds, const std::string& what) {
  if (!holds) world_.fail("promise " + std::to_string(number) + ": " + what);
}

bool Truth::is_whole(const Commit& commit, int64_t step) const {
  const std::string digits = std::to_string(step);
  const int there = world_.shared.find(checkpoints_ + "/step-" + std::string(8 - digits.size(), '0') + digits);
  if (there != commit.directory || there < 0) return false;
  const Entries& entries = world_.shared.at(there).entries;
  return std::ranges::all_of(commit.files, [&](const File& file) {
    const auto entry = entries.find(file.name);
    return entry != entries.end() && entry->second == file.inode && world_.shared.at(file.inode).version == file.version;
  });
}

int64_t Truth::whole() const {
  return std::ranges::count_if(commits_on_disk_, [&](const auto& entry) { return is_whole(entry.second, entry.first); });
}

int64_t Truth::newest() const {
  int64_t newest = 0;
  for (const auto& [step, commit] : commits_on_disk_)
    if (commit.reported) newest = step;
  return newest;
}

void Truth::note_commit(const std::string& path) {
  const int64_t step = step_at(path, checkpoints_);
  if (step < 0) return;
  Commit commit{.directory = world_.shared.find(path)};
  for (const auto& [name, inode] : world_.shared.at(commit.directory).entries)
    commit.files.push_back({name, inode, world_.shared.at(inode).version});
  commit.reported = commits_on_disk_.contains(step) && commits_on_disk_[step].reported;
  commits_on_disk_[step] = std::move(commit);
  damaged_.erase(step);
}

bool Truth::holds_lock(const Process& process) const {
  const int lock = world_.shared.find(run_ + "/lock");
  if (lock < 0) return true;  // nobody has another
  const Inode& file = world_.shared.at(lock);
  const void* const owner = file.lock;
  if (owner == nullptr || file.version == file.locked) return true;  // another that has it must first say so in the file
  return std::ranges::any_of(process.files, [&](const OpenFile& file) { return &file == owner; });
}

bool Truth::job_holds_lock(const Process& process) const {
  const int lock = world_.shared.find(run_ + "/lock");
  const void* const owner = lock < 0 ? nullptr : world_.shared.at(lock).lock;
  return owner != nullptr && std::ranges::any_of(world_.processes(), [&](const std::unique_ptr<Process>& other) {
           const auto is_owner = [&](const OpenFile& file) { return &file == owner; };
           return other->job == process.job && other->rank == 0 && std::ranges::any_of(other->files, is_owner);
         });
}

void Truth::checked_lock() {
  Thread& thread = *world_.running();
  if (holds_lock(*thread.process)) thread.checked_lock = thread.calls;
}

void Truth::check_writer(const std::string& from, const std::string& to) {
  const Thread* const thread = world_.running();
  if (thread == nullptr) return;
  require(11, from.starts_with(run_), thread->process->name + " changes " + from);
  const bool visible = step_at(from, checkpoints_) >= 0 || step_at(to, checkpoints_) >= 0;
  if (!visible || holds_lock(*thread->process)) return;
  require(4, thread->checked_lock >= 0 && thread->calls - thread->checked_lock <= kLongOperation,
          thread->process->name + " lost the lock and renames " + from + " to " + to);
}

// A rank may outlive its job's first rank, which held the lock, and stage files once a later job has swept.
void Truth::note_late(const std::string& directory) {
  const Thread* const thread = world_.running();
  if (thread == nullptr) return;
  const int64_t job = thread->process->job;
  const auto any = [&](const auto& is) {
    return std::ranges::any_of(world_.processes(), [&](const std::unique_ptr<Process>& other) { return is(*other); });
  };
  const bool leads = any([&](const Process& other) { return other.job == job && other.rank == 0 && !other.dead; });
  if (!leads && any([&](const Process& other) { return other.job > job; })) late_.insert(directory);
}

void Truth::changed(const char* call, const std::string& from, const std::string& to) {
  if (std::string_view(call) == "mkdir") return note_late(from);
  check_writer(from, to);
  if (std::string_view(call) == "rename") note_commit(to);
  // Bytes that change after a process has read them are noticed by the next one.
  require(3, !damaged_.empty() || reads_fail_ || whole() >= promised_,
          std::to_string(promised_) + " whole checkpoints were there, " + std::to_string(whole()) + " are left after the " + call +
              " of " + from);
}

void Truth::saved(int64_t step, bool in_memory) {
  const Unowned unowned;
  ++commits_;
  world_.note("saved step ", std::to_string(step), in_memory ? " in memory" : "");
  if (in_memory) {
    in_memory_ = std::max(in_memory_, step), lost_nodes_ = 0;
    return;
  }
  const auto found = commits_on_disk_.find(step);
  const bool there = found != commits_on_disk_.end() && is_whole(found->second, step);
  require(1, there || two_jobs_ || is_damaged(step), "step " + std::to_string(step) + " is reported as saved but not there");
  if (step > in_memory_) in_memory_ = 0;  // a run that ends takes older copies along
  if (!there) return;
  found->second.reported = true;
  promised_ = std::max(promised_, std::min<int64_t>(2, whole()));
}

void Truth::restored(int64_t step, const std::string& differs) {
  const bool owns = !two_jobs_ || job_holds_lock(*world_.running()->process);  // else another job may save meanwhile
  if (const auto found = commits_on_disk_.find(step); found != commits_on_disk_.end() && is_whole(found->second, step))
    found->second.reported = true;  // it is continued from
  const Unowned unowned;
  ++restores_;
  world_.note("restored step ", std::to_string(step));
  require(5, differs.empty(), "the state restored as of step " + std::to_string(step) + " is another: " + differs);
  if (reads_fail_ || !owns) return;
  require(2, step >= newest(),
          "step " + std::to_string(step) + " is restored although step " + std::to_string(newest()) + " was saved");
  require(8, step >= in_memory_ || lost_nodes_ > 0,
          "step " + std::to_string(step) + " is restored although memory holds step " + std::to_string(in_memory_));
}

void Truth::opened() {
  const Unowned unowned;
  if (two_jobs_ || reads_fail_) return;
  const int directory = world_.shared.find(checkpoints_);
  if (directory < 0) return;
  const std::set<std::string> late = std::exchange(late_, {});  // the next start sweeps them
  for (const auto& [name, inode] : world_.shared.at(directory).entries) {
    const std::string path = checkpoints_ + "/" + name;
    require(9, step_at(path, checkpoints_) >= 0 || late.contains(path), name + " is left after a start");
  }
}

void Truth::stopped(int64_t step) {
  const Unowned unowned;
  require(6, step == 0 || newest() >= step || two_jobs_ || is_damaged(step),
          "a stop after step " + std::to_string(step) + " leaves step " + std::to_string(newest()));
}

void Truth::command_starts(const Process& process, const std::string& directory, int64_t step) {
  const Unowned unowned;
  const auto found = commits_on_disk_.find(step);
  const bool there = found != commits_on_disk_.end() && is_whole(found->second, step);
  const bool alone = process.parent == nullptr || !two_jobs_ || job_holds_lock(*process.parent);
  require(10, there || !alone || is_damaged(step),
          "the command runs for step " + std::to_string(step) + " in " + directory + ", which is not committed");
  for (const auto& [other, work] : commands_)
    require(10, other->dead || other->parent != process.parent, "two commands run at once");
  commands_[&process] = {step, directory};
}

void Truth::command_ends(const Process& process) {
  const Unowned unowned;
  const auto [step, directory] = commands_[&process];
  commands_.erase(&process);
  const auto found = commits_on_disk_.find(step);
  const bool alone = process.parent == nullptr || two_jobs_ || found == commits_on_disk_.end();
  require(10, alone || is_whole(found->second, step), "step " + std::to_string(step) + " is deleted under its command");
}

void Truth::supervise_starts() { fruitless_ = 0, at_attempt_ = commits_; }

void Truth::attempt(int64_t code) {
  const Unowned unowned;
  world_.note("attempt ends with ", std::to_string(code));
  fruitless_ = commits_ > at_attempt_ ? 0 : fruitless_ + 1;
  hopeless_ = std::ranges::count(std::array<int64_t, 4>{2, 3, 4, 72}, code) > 0;
  at_attempt_ = commits_;
}

void Truth::gave_up() {
  const Unowned unowned;
  require(7, hopeless_ || fruitless_ >= kGiveUp,
          "supervise gives up after " + std::to_string(fruitless_) + " attempts without a checkpoint");
}

void Truth::damaged(int64_t step) {
  commits_on_disk_.erase(step);
  damaged_.insert(step);
  promised_ = std::min(promised_, whole());
}

void Truth::node_lost() {
  if (++lost_nodes_ > 0) in_memory_ = 0;
}

// Unreported steps may be gone.
void Truth::power_lost() {
  in_memory_ = 0;
  commands_.clear();
  std::erase_if(commits_on_disk_,
                [&](const auto& entry) { return !entry.second.reported && !is_whole(entry.second, entry.first); });
  for (const auto& [step, commit] : commits_on_disk_)
    world_.note("  ", std::to_string(step), is_whole(commit, step) ? " is whole" : " is gone");
}

}  // namespace trireme::simulation
