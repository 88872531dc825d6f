// The units into which a Stage's weights are cut: see UnitId.
#pragma once

#include <cstdint>
#include <vector>

#include "model/stage.h"

namespace trireme {

constexpr int64_t kUnitAlign = 128;  // elements, at whose multiples a weight begins: 256 bytes in bf16
constexpr int64_t round_up_unit(int64_t n, int64_t to = kUnitAlign) { return (n + to - 1) / to * to; }

// In the order of the forward pass. In a bf16 step, weights of one dim are units of their own. A tied head
// reads the table here, or has a tied copy.
std::vector<UnitId> units_of(const ModelConfig& config, const StageShape& shape, bool tied_copy);
// Elements of a unit, gaps included: a multiple of the number of parts into which it is cut.
int64_t size_of(const UnitId& unit, const ModelConfig& config, const StageShape& shape);

}  // namespace trireme
