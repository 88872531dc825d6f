#include "train/run/nan_search.h"

#include <ranges>
#include <utility>
#include <vector>

#include "kernels/finite.h"
#include "parallel/host_collectives.h"
#include "train/step/host_state.h"

namespace trireme {
namespace {

// In the order in which causes come before their effects.
enum Kind : int64_t { in_state, in_forward, in_loss, in_gradient, nowhere };

// This rank's first finding.
class Search {
 public:
  explicit Search(TrainState& run) : run_(run), layers_(run.config.model.layers) {}

  bool over() const { return kind_ != nowhere; }

  void look_at_state() {
    for (const TensorSlice& slice : state_slices(run_, Ownership::held))
      if (!over() && !finite(slice.local)) found(in_state, 0, "its own " + slice.name);
  }
  // The streams that a forward has left.
  void look_at_streams(const Action& action) {
    int64_t place = 0;
    for (const auto& [maker, stream] : run_.stage.streams(run_.pipeline.seat(action))) {
      ++place;
      if (over() || finite(stream)) continue;
      // Chunks in the model's order, each with room for the streams of its half-layers.
      const int64_t chunk = pipeline_shape(run_.config, run_.mesh.replicas()).piece_of(run_.mesh.pp().rank(), action.chunk);
      const int64_t first = 4 * (run_.stage.chunk_at(action.chunk).begin + chunk);
      if (maker.empty())  // the stage before has made it, and reports it
        found(in_forward, first + 1, "what the stage before sent");
      else
        found(in_forward, first + 2 + place, microbatch(action.microbatch) + "what " + maker + " added to the stream" + shared());
    }
  }
  // Before they leave, and the loss with those of the head.
  void look_at_gradients(size_t unit, const Microbatch& batch) {
    const UnitId& id = run_.stage.units()[unit].id;
    if (id.kind == UnitKind::head) look_at_loss(batch.number);
    const bool embeds = id.kind == UnitKind::table || id.kind == UnitKind::positions;
    const int64_t place = id.kind == UnitKind::block ? 2 * layers_ - id.begin : embeds ? 2 * layers_ + 1 : 0;  // backwards
    for (const Parameter& parameter : std::views::reverse(run_.stage.parameters()))  // as backward comes to them
      if (!over() && parameter.unit == unit && !finite(parameter.gradient))
        found(in_gradient, place, microbatch(batch.number) + "the gradient of " + parameter.spec.name);
  }

  // On rank 0 of all ranks' the first.
  std::string first_of_all() const {
    const int64_t before = 1'000'000 * microbatch_ + place_;
    std::string found;
    int64_t first = nowhere, first_before = 0;  // what is found nowhere is not before that
    for (const std::string& told : gather(run_.mesh.all(), std::to_string(kind_) + " " + std::to_string(before) + " " + text_)) {
      const size_t space = told.find(' '), second = told.find(' ', space + 1);
      const int64_t kind = std::stoll(told), at = std::stoll(told.substr(space + 1));
      if (std::pair(kind, at) < std::pair(first, first_before)) first = kind, first_before = at, found = told.substr(second + 1);
    }
    return found;
  }

 private:
  std::string microbatch(int64_t number) {
    microbatch_ = number;
    return "microbatch " + std::to_string(number) + ": ";
  }
  // The stream is a sum over a tp group's ranks.
  std::string shared() const { return run_.mesh.tp().size() > 1 ? " (here or on another rank of its tp group)" : ""; }
  void found(Kind kind, int64_t place, const std::string& what) {
    kind_ = kind, place_ = place, text_ = run_.mesh.describe() + ": " + what;
  }
  void look_at_loss(int64_t number) {
    if (!over() && !finite(run_.loss)) found(in_loss, 0, microbatch(number) + "the loss");
  }
  bool finite(const Tensor& x) { return !x || x.size() == 0 || first_not_finite(on_host(run_.device, x, bytes_)) < 0; }

  TrainState& run_;
  const int64_t layers_;
  Kind kind_ = nowhere;
  int64_t microbatch_ = 0, place_ = 0;
  std::string text_;
  std::vector<std::byte> bytes_;
};

// Connects a step's hooks to the search while the scope lasts.
class Watched {
 public:
  Watched(TrainState& run, Search& search) : run_(run) {
    run.hooks.added = [&search](size_t unit, const Microbatch& batch) { search.look_at_gradients(unit, batch); };
    run.after = [&search](const Action& action) {
      if (action.kind == ActionKind::forward) search.look_at_streams(action);
    };
  }
  ~Watched() { run_.hooks.added = {}, run_.after = {}; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  TrainState& run_;
};

}  // namespace

NanSearch find_not_finite(TrainState& run, const Batch& batch, int64_t step) {
  Search search(run);
  search.look_at_state();
  const Watched watched(run, search);
  const StepResult results = rehearse_step(run, batch, step);
  return {.found = search.first_of_all(), .results = results};
}

}  // namespace trireme
