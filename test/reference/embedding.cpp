#include "test/reference/embedding.h"

namespace trireme::reference {

Doubles embedding(const std::vector<int64_t>& index, const Doubles& table, int64_t cols) {
  Doubles x;
  for (const int64_t row : index)
    for (int64_t c = 0; c < cols; ++c) x.push_back(table.at(static_cast<size_t>(row * cols + c)));
  return x;
}

Doubles embedding_backward(const Doubles& dx, const std::vector<int64_t>& index, int64_t rows, int64_t cols) {
  Doubles dtable(static_cast<size_t>(rows * cols));
  for (size_t n = 0; n < index.size(); ++n)
    for (int64_t c = 0; c < cols; ++c)
      dtable.at(static_cast<size_t>(index[n] * cols + c)) += dx[n * static_cast<size_t>(cols) + static_cast<size_t>(c)];
  return dtable;
}

}  // namespace trireme::reference
