#include "train/step/update_rule.h"

namespace trireme {

RuleKind rule_of(const TrainConfig&) { return adamw_rule(); }

}  // namespace trireme
