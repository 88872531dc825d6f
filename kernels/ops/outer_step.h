// The outer step of copies of the weights that have each made several steps of their own. It is
// Nesterov's momentum over how far the copies have come since they last met. The method is DiLoCo
// (Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023).
#pragma once

#include "kernels/run.h"

namespace trireme {

// delta = outer - master: the outer gradient of one copy.
struct OuterGradient {
  static constexpr auto name = "outer_gradient";
  Tensor delta;          // out  [n] f32
  Tensor outer, master;  // in   [n] f32
  void visit(auto& t) const { t.out(delta), t.in(outer, master); }
  void check() const {
    for (const Tensor& x : {delta, outer, master}) expect(x, "an operand", Dtype::f32, {outer.size()});
  }
};
void launch(const Cpu&, const OuterGradient&);
void launch(const Cuda&, const OuterGradient&);

//   g = scale delta;   u = momentum u + g;   outer -= lr (g + momentum u);   master = outer;   delta = 0
struct OuterStep {
  static constexpr auto name = "outer_step";
  Tensor outer, u;  // add  [n] f32
  Tensor master;    // out  [n] f32
  Tensor delta;     // add  [n] f32: summed over the copies
  float scale;      // 1 / copies
  float lr, momentum;
  void visit(auto& t) const { t.add(outer, u, delta), t.out(master); }
  void check() const {
    for (const Tensor& x : {outer, u, master, delta}) expect(x, "an operand", Dtype::f32, {outer.size()});
  }
};
void launch(const Cpu&, const OuterStep&);
void launch(const Cuda&, const OuterStep&);

}  // namespace trireme
