//===- Engines.h - The engines there are ------------------------*- C++ -*-===//
#ifndef FORESIGHT_GEMM_ENGINES_H
#define FORESIGHT_GEMM_ENGINES_H

#include "foresight/gemm/Gemm.h"

namespace foresight::gemm {

const Engine *referenceEngine();
/// Null, with a reason, if libdnnl cannot be opened.
const Engine *oneDnnEngine(std::string *reason);

/// `count` weights from position `index` in memory on, as f32.
void convertWeights(const Product &product, int64_t index, int64_t count,
                    float *to);

float activate(float value, Activation activation);

} // namespace foresight::gemm
#endif
