#include "train/run/run_view.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/number_format.h"
#include "checkpoint/reader.h"
#include "train/config/config.h"
#include "train/run/data_record.h"
#include "train/run/mesh_suggestion.h"
#include "train/step/plan.h"
#include "train/telemetry/run_starts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastSilence = 60;         // seconds without a line after which a run counts as silent, at least
constexpr double kSecondLook = 10;           // seconds until a checkpoint with a problem is looked at again
constexpr int64_t kMostPlannedRanks = 1024;  // ranks, up to which the plan is made again for the memory by arena
constexpr std::array kRunFiles{"metrics.jsonl", "config.yaml", "run.id", "starts.jsonl", "exit.json", "checkpoints", "lock"};

double unix_time_of(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

double time_of_file(const std::string& path) {
  std::error_code absent;
  const auto time = fs::last_write_time(path, absent);
  return absent ? 0 : unix_time_of(time);
}

std::string directory_of_run(const std::string& given) {
  std::error_code error;
  if (!fs::is_directory(given, error))
    throw DataError(given + ": is not a directory; name the directory of a run, such as runs/NAME");
  const bool run = std::ranges::any_of(kRunFiles, [&](const char* name) { return fs::exists(given + "/" + name, error); });
  if (!run)
    throw DataError(given + ": is not the directory of a run: it has neither metrics.jsonl nor config.yaml; name runs/NAME");
  return given;
}

// At most so many bytes of a file; "" if it cannot be read.
std::string first_bytes_of(const std::string& path, int64_t most) try {
  File file = File::open_to_read(path);
  std::string text(static_cast<size_t>(std::min(most, file.size())), ' ');
  text.resize(static_cast<size_t>(file.read(text.data(), std::ssize(text))));
  return text;
} catch (const DataError&) {
  return "";
}

// The arenas of the rank that needs most memory.
FactRows planned_memory(RunConfig config, int64_t ranks) try {
  if (ranks > kMostPlannedRanks) return {};
  if (config.kernels.device == DeviceChoice::automatic) config.use_device(DeviceChoice::cpu);
  Plan largest;
  for (const Plan& plan : stage_plans(config, ranks))
    if (plan.sizes.total() > largest.sizes.total()) largest = plan;
  const ArenaSizes& sizes = largest.sizes;
  return {{"weights", std::to_string(sizes.weights)},
          {"gradients", std::to_string(sizes.gradients)},
          {"optimizer", std::to_string(sizes.optimizer)},
          {"activations", std::to_string(sizes.activations)},
          {"temporaries", std::to_string(sizes.temporaries)}};
} catch (const std::exception&) {
  return {};  // a config of another version, or a mesh that this machine cannot plan
}

FactRows facts_of(const RunConfig& config, int64_t ranks) {
  const auto number = [](int64_t count) { return std::to_string(count); };
  std::string mesh = number(ranks) + (ranks == 1 ? " rank" : " ranks");
  const int64_t inner = std::max<int64_t>(config.parallel.pp * config.parallel.tp, 1);
  if (ranks > 1)
    mesh += ": dp " + number(std::max<int64_t>(ranks / inner, 1)) + ", pp " + number(config.parallel.pp) + ", tp " +
            number(config.parallel.tp) + ", zero " + number(config.parallel.zero);
  return {{"model", std::string(name_of(config.model.family)) + ", " + number(config.model.layers) + " layers, width " +
                        number(config.model.width) + ", context " + number(config.model.context)},
          {"mesh", mesh},
          {"batch", number(config.train.batch) + " sequences, " +
                        human_count(static_cast<double>(config.train.batch) * static_cast<double>(config.model.context)) +
                        " tokens a step"}};
}

}  // namespace

RunView::RunView(const std::string& directory) : metrics_(directory + "/metrics.jsonl") {
  picture_.directory = directory_of_run(directory);
  picture_.title = fs::path(directory).lexically_normal().filename().string();
  if (picture_.title.empty()) picture_.title = fs::path(directory).lexically_normal().parent_path().filename().string();
}

double RunView::changed(const char* name) const { return time_of_file(picture_.directory + "/" + name); }

const RunPicture& RunView::update(Clock::duration most) {
  picture_.now = unix_seconds();
  read_starts();
  read_config();
  read_metrics(most);
  read_exit();
  read_checkpoints();
  read_data();
  read_log();
  judge();
  return picture_;
}

void RunView::begin_anew() {
  picture_.history = RunHistory(picture_.schedule);
  ++picture_.generation;
  starts_shown_ = 0;
  exit_shown_ = 0;
}

void RunView::read_config() {
  const double time = changed("config.yaml");
  if (time == config_time_) return;
  config_time_ = time;
  picture_.config = text_of_file(picture_.directory + "/config.yaml", 1 << 20);
  try {
    const RunConfig config = parse_saved_config(picture_.directory + "/config.yaml", picture_.config, {}, Purpose::plan);
    const int64_t ranks = picture_.starts.empty() ? 1 : picture_.starts.back().ranks;
    picture_.title = config.train.name;
    picture_.schedule = {.steps = config.train.steps,
                         .eval_every = config.train.eval_every,
                         .save_every = config.checkpoint.every,
                         .evaluation_in_steps = 0};
    picture_.facts = facts_of(config, ranks);
    picture_.memory = planned_memory(config, ranks);
  } catch (const std::exception&) {  // of another version: its curves are shown without its sizes
  }
  metrics_ = FollowedFile(picture_.directory + "/metrics.jsonl");
  begin_anew();
}

void RunView::read_metrics(Clock::duration most) {
  try {
    metrics_.read(
        most, [&] { begin_anew(); }, [&](std::string_view line) { picture_.history.add(line); });
  } catch (const DataError&) {  // replaced or cut while it was read: the next look finds out
  }
  picture_.read = metrics_.offset(), picture_.size = metrics_.size(), picture_.more = metrics_.more();
  const size_t known = picture_.starts.size();
  if (picture_.more) return;
  for (; starts_shown_ < known; ++starts_shown_) {
    const RunStart& start = picture_.starts[starts_shown_];
    const std::string ranks = std::to_string(start.ranks) + (start.ranks == 1 ? " rank" : " ranks");
    if (starts_shown_ == 0) continue;
    picture_.history.add(
        {.step = start.step,
         .kind = "restart",
         .words = "started again" + (start.step > 0 ? " after step " + std::to_string(start.step) : "") + ", " + ranks});
  }
}

void RunView::read_starts() {
  const double time = changed("starts.jsonl");
  if (time == starts_time_) return;
  starts_time_ = time;
  std::vector<RunStart> starts = recorded_starts(picture_.directory);
  if (starts.size() < starts_shown_) starts_shown_ = 0;
  if (!starts.empty() && (picture_.starts.empty() || starts.back().ranks != picture_.starts.back().ranks))
    config_time_ = -1;  // the plan depends on the ranks
  picture_.starts = std::move(starts);
}

void RunView::read_exit() {
  const double time = changed("exit.json");
  if (time != exit_time_) {
    exit_time_ = time;
    const std::optional<ExitFacts> found = recorded_exit(picture_.directory + "/exit.json");
    picture_.exit = found.value_or(ExitFacts{});
    if (found) picture_.exit.time = time;
  }
  const ExitFacts& exit = picture_.exit;
  if (picture_.more || exit.time == 0 || exit_shown_ == exit.time) return;
  exit_shown_ = exit.time;
  if (exit.code <= 0) return;
  const std::string where = exit.host.empty() ? "" : " on " + exit.host;
  picture_.history.add({.step = std::max<int64_t>(exit.step, 0),
                        .kind = "verdict",
                        .words = "ended with code " + std::to_string(exit.code) + ", " + exit.cause +
                                 (exit.rank < 0 ? "" : " of rank " + std::to_string(exit.rank)) + where +
                                 (exit.message.empty() ? "" : ": " + exit.message)});
}

void RunView::read_checkpoints() {
  const double time = changed("checkpoints");
  const bool again = checkpoints_again_ > 0 && picture_.now > checkpoints_again_;
  if (time == checkpoints_time_ && !again) return;
  checkpoints_time_ = time;
  checkpoints_again_ = 0;
  if (time == 0) return picture_.checkpoints.clear();
  try {
    std::vector<SavedState> found;
    for (const CheckpointInfo& info : list_checkpoints(picture_.directory)) {
      found.push_back({.name = fs::path(info.directory).filename().string(),
                       .step = info.step,
                       .bytes = info.bytes,
                       .time = time_of_file(info.directory + "/manifest.json"),
                       .problem = info.problem});
      if (!info.problem.empty()) checkpoints_again_ = picture_.now + kSecondLook;
    }
    picture_.checkpoints = std::move(found);
  } catch (const std::exception&) {  // removed while it was listed
    checkpoints_again_ = picture_.now;
  }
}

void RunView::read_data() {
  const double time = changed("data.jsonl");
  if (time == data_time_) return;
  data_time_ = time;
  picture_.data.clear();
  try {
    for (const DataRecord& record : recorded_data(picture_.directory)) {
      const std::string from = "from step " + std::to_string(record.after_step + 1);
      for (const DataRecord::Source& source : record.sources)
        for (const DataRecord::Shard& shard : source.shards)
          picture_.data.emplace_back(from, shard.path + ", digest " + shard.digest +
                                               (record.sources.size() > 1 ? ", weight " + significant(source.weight, 4) : ""));
      if (!record.excluded.empty()) picture_.data.emplace_back(from, "documents left out, digest " + record.excluded);
      for (const std::string& steps : record.leave_out) picture_.data.emplace_back(from, "batches left out, steps " + steps);
    }
  } catch (const std::exception& problem) {
    picture_.data.emplace_back("data.jsonl", problem.what());
  }
}

// The first lines of log.txt describe the device; those of steps begin with their number.
void RunView::read_log() {
  if (!picture_.environment.empty() && picture_.starts.size() == starts_listed_) return;
  constexpr int kMostLines = 8;
  FactRows rows;
  for (const RunStart& start : picture_.starts)
    if (!start.version.empty()) rows = {{"version", start.version}, {"host", start.host}};
  std::string text = first_bytes_of(picture_.directory + "/log.txt", 8 << 10);
  for (int i = 0; i < kMostLines && text.find('\n') != std::string::npos; ++i) {
    const std::string line = text.substr(0, text.find('\n'));
    text.erase(0, line.size() + 1);
    const size_t words = line.find("  ");  // after the time
    if (words == std::string::npos || line.compare(words + 2, 5, "step ") == 0) break;
    rows.emplace_back(i == 0 ? "log.txt" : "", line.substr(words + 2));
  }
  picture_.environment = std::move(rows);
  starts_listed_ = picture_.starts.size();
}

void RunView::judge() {
  RunPicture& p = picture_;
  p.last_written = std::max({changed("metrics.jsonl"), changed("log.txt"), p.exit.time});
  if (p.last_written == 0) p.last_written = std::max(config_time_, starts_time_);
  const double started = p.starts.empty() ? 0 : p.starts.back().time;
  if (p.exit.time > 0 && p.exit.time >= started) {
    p.state = p.exit.code == 0                                     ? RunState::finished
              : p.exit.code == static_cast<int>(ExitCode::stopped) ? RunState::stopped
                                                                   : RunState::failed;
    return;
  }
  const double usual = std::max(kLeastSilence, 3 * p.history.left.usual_step());
  p.state = p.silent() > usual ? RunState::silent : RunState::running;
}

}  // namespace trireme
