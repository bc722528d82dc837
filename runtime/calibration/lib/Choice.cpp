//===- Choice.cpp - One candidate a layer under one budget ----------------===//
#include "foresight/calibration/Choice.h"

namespace foresight::calibration {

std::vector<size_t> chooseWithin(const std::vector<LayerChoices> &layers,
                                 double limit) {
  std::vector<size_t> chosen(layers.size(), 0);
  double spent = 0;
  while (true) {
    int64_t best = -1;
    double bestRatio = 0, bestCost = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      const std::vector<Candidate> &hull = layers[l].hull;
      if (chosen[l] + 1 >= hull.size())
        continue;
      const Candidate &now = hull[chosen[l]], &next = hull[chosen[l] + 1];
      const double cost = layers[l].weight * (next.error - now.error);
      if (spent + cost > limit)
        continue;
      const double saved = now.bytes - next.bytes;
      // A step that costs nothing is always worth it.
      const double ratio = cost > 0 ? saved / cost : saved * 1e30;
      if (best < 0 || ratio > bestRatio) {
        best = static_cast<int64_t>(l);
        bestRatio = ratio;
        bestCost = cost;
      }
    }
    if (best < 0)
      return chosen;
    ++chosen[best];
    spent += bestCost;
  }
}

} // namespace foresight::calibration
