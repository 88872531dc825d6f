// BusyMap: the busy times of ranks over the steps, in bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

class BusyMap {
 public:
  static constexpr int64_t kMostColumns = 160, kMostRows = 128;

  struct Column {
    int64_t first_step, last_step, count;
    std::vector<double> sums;  // by row; ms
  };

  // Once there are too many columns, neighbours share one, with their mean. Ranks share rows if there are more than kMostRows, and
  // the busiest of them counts. Another number of ranks begins the map anew. A time that is not finite counts as 0.
  void add(int64_t step, const std::vector<double>& ms);

  int64_t ranks() const { return ranks_; }
  int64_t ranks_per_row() const { return per_row_; }
  int64_t width() const { return width_; }
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<double>& last() const { return last_; }  // by rank

 private:
  void halve();

  int64_t ranks_ = 0, per_row_ = 1, width_ = 1;
  std::vector<Column> columns_;
  std::vector<double> last_;
};

}  // namespace trireme
