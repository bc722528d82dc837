//===- Verify.cpp - foresight verify --------------------------------------===//
#include "Commands.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/support/Json.h"
#include "foresight/verify/Compare.h"

#include <cmath>
#include <cstdio>

namespace foresight::tools {
namespace {

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

std::string resultText(const verify::Finding &finding) {
  if (!finding.mismatch.empty())
    return finding.mismatch;
  if (!finding.greedy)
    return "largest relative error " + scientific(finding.error) +
           " after token " + std::to_string(finding.worst);
  if (finding.close == 0)
    return "all equal";
  return std::to_string(finding.close) + " of them within the tolerance of "
                                         "the likeliest";
}

OrderedJson json(const verify::Report &report) {
  OrderedJson out = {{"passed", report.passed()},
                     {"largest_relative_error", report.largestError()},
                     {"tolerance", report.tolerance},
                     {"cases", OrderedJson::array()}};
  for (const verify::Finding &finding : report.findings) {
    OrderedJson item = {{"name", finding.name}, {"tokens", finding.tokens}};
    if (finding.greedy)
      item["close"] = finding.close;
    else
      item["relative_error"] = finding.error;
    if (!finding.mismatch.empty())
      item["mismatch"] = finding.mismatch;
    item["passed"] = finding.passed(report.tolerance);
    out["cases"].push_back(std::move(item));
  }
  return out;
}

Status verify(const Args &args) {
  if (!args.has("expected"))
    return makeError(ErrorCode::Usage, "which reference? Give --expected=FILE");
  FORESIGHT_TRY(double tolerance, args.number("tolerance", -1));
  if (args.has("tolerance") && !(tolerance >= 0))
    return makeError(ErrorCode::Usage, "--tolerance is a number from 0, not '",
                     args.text("tolerance"), "'");
  const std::string path = args.text("expected");
  FORESIGHT_TRY(const verify::Reference reference,
                verify::Reference::read(path));
  FORESIGHT_TRY(Model model, loadModel(args));
  if (args.has("dense"))
    FORESIGHT_CHECK(model.session->useDense(true));
  const std::string &dtype = model.manifest().model.dtype;
  if (!args.has("tolerance"))
    tolerance = verify::toleranceOf(dtype);
  FORESIGHT_TRY(const verify::Report report,
                verify::compare(*model.session, reference, tolerance));

  if (args.has("json")) {
    OrderedJson out = json(report);
    if (model.manifest().model.synthetic)
      out["note"] = kSyntheticNote;
    std::printf("%s\n", dumpJson(out, 2).c_str());
  } else {
    Table table({"case", "tokens", "result", ""}, "lrll");
    for (const verify::Finding &finding : report.findings)
      table.add({finding.name, std::to_string(finding.tokens),
                 resultText(finding),
                 finding.passed(tolerance) ? "" : "differs"});
    std::printf("%s", table.text().c_str());
    std::printf("largest relative error %s, tolerance %s (%s): %s\n",
                scientific(report.largestError()).c_str(),
                scientific(tolerance).c_str(), dtype.c_str(),
                report.passed() ? "passed" : "differs");
  }
  FORESIGHT_CHECK(flushOutput());
  for (const verify::Finding &finding : report.findings)
    if (!finding.passed(tolerance))
      return makeError(ErrorCode::Mismatch, path, ": ", finding.name, ": ",
                       resultText(finding), "; the tolerance is ",
                       scientific(tolerance), " (", dtype,
                       ")\nis the reference of this model? A larger "
                       "difference than the type explains is a fault: "
                       "report it with the model");
  return {};
}

} // namespace

Command verifyCommand() {
  return {{"verify", "compare with a reference",
           "[BUNDLE] --expected=FILE [OPTIONS]",
           "Runs the sequences of a safetensors file and compares the logits "
           "with those that it\nholds: NAME.input_ids [batch, tokens], "
           "NAME.attention_mask (optional; padding on either\nside is left "
           "out), NAME.logits [batch, tokens, vocabulary] or, of the last "
           "token,\n[batch, vocabulary], and NAME.greedy or NAME.tokens: a "
           "prompt and the likeliest tokens after\nit. Each sequence runs as "
           "a prompt and token by token. The error is the largest "
           "difference\nof two logits by the largest logit of the row. Exit "
           "code 7 if it is above the tolerance.",
           withDeviceOptions({
               {"expected", "FILE", "the reference"},
               {"tolerance", "X",
                "largest relative error that passes (default: 1e-4 for\nf32, "
                "2e-2 for 16 bits)"},
               {"dense", nullptr, "through decode_dense"},
               {"json", nullptr, "print JSON"},
           })},
          verify};
}

} // namespace foresight::tools
