//===- Program.cpp - What a program may be asked for ----------------------===//
#include "foresight/runtime/Device.h"

namespace foresight {

Status Program::checkStep(int64_t entry, const Step &step) const {
  if (entry < 0 || entry >= static_cast<int64_t>(facts.entries.size()))
    return makeError(ErrorCode::Usage, "there is no entry ", entry, " of ",
                     facts.entries.size());
  const EntryInfo &info = facts.entries[static_cast<size_t>(entry)];
  if (step.tokens < 1 || step.tokens > info.maxTokens)
    return makeError(ErrorCode::Usage, "entry '", info.name, "' computes 1..",
                     info.maxTokens, " tokens a call, not ", step.tokens);
  // Rows of a batch have positions of their own.
  if (info.isBatch())
    return {};
  if (step.position < 0 || step.position > facts.model.maxSeq - step.tokens)
    return makeError(ErrorCode::Usage, "a sequence has at most ",
                     facts.model.maxSeq, " tokens; ", step.tokens,
                     " at position ", step.position, " do not fit");
  return {};
}

Status Program::checkStage(int64_t entry, int64_t stage,
                           const Step &step) const {
  FORESIGHT_CHECK(checkStep(entry, step));
  const size_t count = facts.entries[static_cast<size_t>(entry)].stages.size();
  if (stage < 0 || stage >= static_cast<int64_t>(count))
    return makeError(ErrorCode::Usage, "there is no stage ", stage, " of ",
                     count);
  return {};
}

Status Program::checkRange(int64_t buffer, int64_t offset, size_t bytes) const {
  if (buffer < 0 || buffer >= static_cast<int64_t>(facts.buffers.size()))
    return makeError(ErrorCode::Usage, "there is no buffer ", buffer, " of ",
                     facts.buffers.size());
  const BufferInfo &info = facts.buffers[static_cast<size_t>(buffer)];
  if (offset < 0 || offset > info.bytes() ||
      bytes > static_cast<size_t>(info.bytes() - offset))
    return makeError(ErrorCode::Usage, "buffer '", info.name, "' has ",
                     info.bytes(), " bytes; ", bytes, " at ", offset,
                     " are not within it");
  return {};
}

} // namespace foresight
