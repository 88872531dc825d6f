// Medians of numbers in any order; 0 without numbers.
#pragma once

#include <vector>

namespace trireme {

double median(std::vector<double> values);        // of an even count, the mean of the two in the middle
double upper_median(std::vector<double> values);  // of an even count, the greater of the two: one of the values

}  // namespace trireme
