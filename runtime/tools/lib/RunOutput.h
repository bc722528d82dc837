//===- RunOutput.h - What foresight run prints ------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_RUNOUTPUT_H
#define FORESIGHT_TOOLS_RUNOUTPUT_H

#include "Generate.h"

#include "foresight/runtime/Session.h"
#include "foresight/support/Json.h"

namespace foresight::tools {

enum class Output { Text, Ids, Json };

/// What is told of a text that has ended.
struct Summary {
  const Generated &made;
  size_t promptTokens;
  const Session &session;
  int64_t batch; ///< texts that were decoded together, dense; 0: each by itself

  /// Of a step, which in a batch makes a token of each text.
  double secondsPerToken() const;
  /// 0 if it was not measured and depends on the token.
  double bytesPerToken() const;
  const char *decode() const;
  void print() const;
  OrderedJson json() const;
};

/// Prints texts in the order of their prompts, whichever order their tokens
/// come in; as JSON, tokens as they come.
class Printer {
public:
  /// `prompts` is how many there are: of one nothing says which it is.
  Printer(Output output, size_t prompts, bool stats)
      : output(output), stats(stats), held(prompts) {}

  /// What is printed in front of each text, if anything.
  std::vector<std::string> echoes;

  bool needsNumbers() const { return stats || output == Output::Json; }
  Status begin(size_t prompt);
  Status token(size_t prompt, int32_t id, std::string_view text);
  Status end(size_t prompt, const Summary &summary);

private:
  struct Held {
    std::string text; ///< waits for earlier texts to end
    bool hasIds = false, hasEnded = false;
  };
  void write(size_t prompt, std::string_view text);
  void object(size_t prompt, const OrderedJson &members);

  Output output;
  bool stats;
  std::vector<Held> held;
  size_t shown = 0; ///< the text that is printed now
};

} // namespace foresight::tools
#endif
