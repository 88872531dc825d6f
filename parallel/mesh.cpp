#include "parallel/mesh.h"

namespace trireme {

Mesh::Mesh(const World& world, const ParallelConfig& config)
    : rank_(world.rank()), dp_(config.dp), pp_(config.pp), cp_(config.cp), tp_(config.tp) {
  const int64_t others = pp_ * cp_ * tp_, ranks = world.size();
  if (dp_ == 0) dp_ = ranks / others;
  if (dp_ * others != ranks)
    throw ConfigError(text("parallel: dp ", config.dp, " x pp ", pp_, " x cp ", cp_, " x tp ", tp_, " does not make the ", ranks,
                           ranks == 1 ? " rank" : " ranks", " of this start"));
}

}  // namespace trireme
