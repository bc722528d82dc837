//===- TokenSources.cpp - Who picks the tokens of a session ---------------===//
#include "TokenSources.h"

namespace foresight::tools {
namespace {

/// The host picks: it reads the logits of every step.
class HostTokens final : public TokenSource {
public:
  HostTokens(Session &session, const sampling::SamplerOptions &options)
      : session(session), sampler(options) {}

  Status prompt(std::span<const int32_t> ids, int64_t mostTokens) override {
    FORESIGHT_TRY(logits, session.prompt(ids));
    picked = 0;
    return {};
  }
  Result<int32_t> next() override {
    if (picked > 0) {
      FORESIGHT_TRY(logits, session.decode(last));
    }
    FORESIGHT_TRY(last, sampler.sample(logits, picked++));
    return last;
  }
  int64_t room() const override {
    return session.capacity() - session.position();
  }

private:
  Session &session;
  sampling::Sampler sampler;
  std::span<const float> logits;
  uint64_t picked = 0;
  int32_t last = -1;
};

/// The device picks and goes on by itself; the host reads along.
class DeviceTokens final : public TokenSource {
public:
  DeviceTokens(Session &session, const sampling::SamplerOptions &options)
      : session(session), sampling(sampling::deviceOptions(options)) {}
  ~DeviceTokens() override { session.stopTokens(); }
  DeviceTokens(const DeviceTokens &) = delete;
  DeviceTokens &operator=(const DeviceTokens &) = delete;

  Status prompt(std::span<const int32_t> ids, int64_t mostTokens) override {
    FORESIGHT_CHECK(session.feed(ids));
    return mostTokens > 0 ? session.startTokens(sampling, mostTokens)
                          : Status();
  }
  Result<int32_t> next() override {
    FORESIGHT_TRY(const PickedToken token, session.nextToken());
    return token.id;
  }
  int64_t room() const override {
    return session.capacity() - session.position();
  }

private:
  Session &session;
  const foresight_sampling sampling;
};

} // namespace

std::unique_ptr<TokenSource>
createTokenSource(Session &session, const sampling::SamplerOptions &options) {
  if (session.picksTokens() && !session.isTracing())
    return std::make_unique<DeviceTokens>(session, options);
  return std::make_unique<HostTokens>(session, options);
}

} // namespace foresight::tools
