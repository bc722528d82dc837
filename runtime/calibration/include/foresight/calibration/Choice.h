//===- Choice.h - One candidate a layer under one budget --------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_CHOICE_H
#define FORESIGHT_CALIBRATION_CHOICE_H

#include "foresight/calibration/LayerTable.h"

namespace foresight::calibration {

/// What a layer may choose from and how much its error hurts.
struct LayerChoices {
  std::vector<Candidate> hull; ///< of its table
  double weight = 1;           ///< nats a unit of error
};

/// The index in each layer's hull that reads the fewest bytes while the summed
/// `weight * error` stays within `limit`. Starts without error and takes, again
/// and again, the step that saves the most bytes a nat, until none fits.
std::vector<size_t> chooseWithin(const std::vector<LayerChoices> &layers,
                                 double limit);

} // namespace foresight::calibration
#endif
