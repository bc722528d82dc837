//===- ForesightOps.td - All ops --------------------------------*- tablegen -*-===//
include "foresight/Dialect/WeightOps.td"
include "foresight/Dialect/DenseOps.td"
include "foresight/Dialect/AttentionOps.td"
include "foresight/Dialect/SelectionOps.td"
include "foresight/Dialect/ScheduleOps.td"
