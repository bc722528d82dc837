//===- OptWarnings.cpp - What differs from OPT and is compiled ------------===//

#include "OptBlocks.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;

/// What no OPT model has, but what is well defined, is compiled as the graph
/// says; it may be a mistake, so it is said, once for all layers that have it.
static void warnOfNumbers(Program &program, const std::vector<bool> &live) {
  struct Difference {
    Part *first;
    StringRef what;
    double found, usual;
    size_t others;
  };
  SmallVector<Difference> differences;
  auto note = [&](Part &at, StringRef what, double found, double usual) {
    for (Difference &known : differences)
      // Scales are solved for, so they are equal to within rounding only.
      if (known.what == what && known.usual == usual &&
          std::abs(known.found - found) <= 1e-5 * std::abs(found)) {
        ++known.others;
        return;
      }
    differences.push_back({&at, what, found, usual, 0});
  };
  for (auto [i, at] : llvm::enumerate(program.parts)) {
    if (!live[i])
      continue;
    if (at.kind == Part::Kind::Norm && at.number != 1e-5)
      note(at, "epsilon", at.number, 1e-5);
    if (at.kind == Part::Kind::Embed && at.offset >= 0 && at.offset != 2)
      note(at, "offset", static_cast<double>(at.offset), 2);
    if (at.kind != Part::Kind::Attention)
      continue;
    const int64_t headSize = at.width / at.heads;
    double usual = 1 / std::sqrt(static_cast<double>(headSize));
    if (at.number != usual)
      note(at, "scale", at.number, usual);
  }
  for (const Difference &d : differences) {
    InFlightDiagnostic warning = emitWarning(d.first->locations.back());
    warning << "node '" << onnx::nameOf(d.first->locations.front()) << "': the "
            << d.what << " of " << d.first->name << " is " << d.found
            << ", not " << d.usual << " as in OPT";
    if (d.others)
      warning << ", and that of " << d.others << " more";
    warning << "; it is compiled as the graph says";
  }
}

/// Names have no meaning, but a tensor that stands where another of the file
/// should, by its name, may have been put there by mistake.
static void warnOfNames(Program &program, const std::vector<bool> &live,
                        Location loc) {
  struct Use {
    onnx::ConstantOp constant;
    std::string role;
  };
  SmallVector<Use> uses;
  llvm::DenseMap<Operation *, unsigned> times;
  llvm::StringSet<> roles;
  for (auto [i, at] : llvm::enumerate(program.parts)) {
    // A tied head has the embedding's name.
    if (!live[i] || at.name == "lm_head" || at.kind == Part::Kind::Embed)
      continue;
    onnx::ConstantOp weight =
        at.kind == Part::Kind::Norm ? at.gamma : at.matrix.constant;
    for (auto [constant, kind] :
         {std::pair(weight, ".weight"), std::pair(at.beta, ".bias")}) {
      if (!constant)
        continue;
      uses.push_back({constant, at.name + kind});
      roles.insert(uses.back().role);
      ++times[constant];
    }
  }
  const Use *first = nullptr;
  size_t others = 0;
  for (const Use &use : uses) {
    // One tensor in several places is what exporters make of equal ones.
    StringRef name = onnx::ConstantOp(use.constant).getName();
    if (size_t at = name.rfind("decoder."); at != StringRef::npos)
      name = name.drop_front(at + StringRef("decoder.").size());
    if (times[use.constant] > 1 || name == use.role || !roles.contains(name))
      continue;
    if (first)
      ++others;
    else
      first = &use;
  }
  if (!first)
    return;
  InFlightDiagnostic warning = emitWarning(loc);
  warning << "tensor '" << onnx::ConstantOp(first->constant).getName()
          << "' is used as " << first->role;
  if (others)
    warning << ", and " << others << " more as something else than they are "
            << "called";
  warning << "; it is compiled as the graph says";
}

void raising::warnOfDifferences(Program &program, const std::vector<bool> &live,
                                Location loc) {
  warnOfNumbers(program, live);
  warnOfNames(program, live, loc);
}
