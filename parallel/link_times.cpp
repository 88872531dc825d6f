#include "parallel/link_times.h"

#include <algorithm>
#include <utility>

namespace trireme {

void LinkTimes::add(const LinkTime& link) {
  if (link.bytes < static_cast<float>(kLeast)) return;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(links_, [&](const LinkTime& known) { return known.same(link); });
  if (found != links_.end()) {
    if (link.per_byte() < found->per_byte()) *found = link;
  } else if (links_.size() < kMost) {
    links_.push_back(link);
  }
}

std::vector<LinkTime> LinkTimes::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(links_, {});
}

}  // namespace trireme
