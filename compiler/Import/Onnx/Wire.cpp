//===- Wire.cpp - A model file as messages over its own bytes -------------===//
//
// Field numbers are those of onnx.proto.
//
//===----------------------------------------------------------------------===//

#include "Wire.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"

#include <cstring>
#include <optional>

using namespace llvm;
using namespace foresight::onnx::wire;

std::string foresight::onnx::wire::nameOf(int32_t dataType) {
  static constexpr const char *kNames[] = {
      "UNDEFINED",      "FLOAT",        "UINT8",          "INT8",
      "UINT16",         "INT16",        "INT32",          "INT64",
      "STRING",         "BOOL",         "FLOAT16",        "DOUBLE",
      "UINT32",         "UINT64",       "COMPLEX64",      "COMPLEX128",
      "BFLOAT16",       "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
      "FLOAT8E5M2FNUZ", "UINT4",        "INT4",           "FLOAT4E2M1"};
  if (dataType >= 0 && dataType < static_cast<int32_t>(std::size(kNames)))
    return kNames[dataType];
  return "element type " + std::to_string(dataType);
}

namespace {

/// What a field holds, by its wire type.
struct Field {
  uint32_t number = 0;
  uint32_t wireType = 0;
  uint64_t value = 0; // wire types 0, 1 and 5
  StringRef bytes;    // wire type 2
};

/// Walks the fields of one message. After an error nothing more is read, so
/// callers check once, at the end.
class Reader {
public:
  Reader(StringRef bytes, const char *file, std::string &error)
      : cursor(bytes.data()), end(bytes.data() + bytes.size()), file(file),
        error(error) {}

  std::optional<Field> next() {
    if (cursor == end || !error.empty())
      return std::nullopt;
    std::optional<uint64_t> key = varint();
    if (!key)
      return std::nullopt;
    Field field;
    field.number = static_cast<uint32_t>(*key >> 3);
    field.wireType = static_cast<uint32_t>(*key & 7);
    if (*key >> 32 || field.number == 0)
      return fail("a field number that cannot be");
    switch (field.wireType) {
    case 0: {
      std::optional<uint64_t> value = varint();
      if (!value)
        return std::nullopt;
      field.value = *value;
      return field;
    }
    case 1:
    case 5: {
      ptrdiff_t width = field.wireType == 1 ? 8 : 4;
      if (end - cursor < width)
        return fail("the file ends inside a number");
      field.value = width == 8 ? support::endian::read64le(cursor)
                               : support::endian::read32le(cursor);
      cursor += width;
      return field;
    }
    case 2: {
      std::optional<uint64_t> length = varint();
      if (!length)
        return std::nullopt;
      if (*length > static_cast<uint64_t>(end - cursor))
        return fail("a field of " + Twine(*length) + " bytes, but only " +
                    Twine(static_cast<uint64_t>(end - cursor)) +
                    " are left: the file is truncated or not a model");
      field.bytes = StringRef(cursor, *length);
      cursor += *length;
      return field;
    }
    default:
      return fail("wire type " + Twine(field.wireType) +
                  ", which no field has");
    }
  }

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (cursor == end) {
        fail("the file ends inside a number");
        return std::nullopt;
      }
      uint8_t byte = static_cast<uint8_t>(*cursor++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80))
        return value;
    }
    fail("a number of more than ten bytes");
    return std::nullopt;
  }

  bool atEnd() const { return cursor == end; }

  std::nullopt_t fail(const Twine &what) {
    if (error.empty())
      error =
          ("byte " + Twine(static_cast<uint64_t>(cursor - file)) + ": " + what)
              .str();
    return std::nullopt;
  }

private:
  const char *cursor, *end, *file;
  std::string &error;
};

class Parser {
public:
  explicit Parser(StringRef file) : file(file) {}

  std::string error;

  Model model() {
    Model result;
    fields(file, [&](const Field &f) {
      switch (f.number) {
      case 1:
        result.irVersion = static_cast<int64_t>(f.value);
        break;
      case 2:
        result.producer = f.bytes;
        break;
      case 3:
        result.producerVersion = f.bytes;
        break;
      case 7:
        expectBytes(f);
        result.graph = graph(f.bytes);
        hasGraph = true;
        break;
      case 8:
        result.opsets.push_back(opset(f.bytes));
        break;
      case 25:
        result.functions.push_back(function(f.bytes));
        break;
      default:
        break;
      }
    });
    if (error.empty() && !hasGraph)
      error = "it has no graph";
    if (error.empty() && result.irVersion <= 0)
      error = "it has no IR version";
    return result;
  }

private:
  StringRef file;
  bool hasGraph = false;
  unsigned depth = 0;

  /// Calls `use` on each field of the message in `bytes`.
  template <typename Use> void fields(StringRef bytes, Use use) {
    Reader reader(bytes, file.data(), error);
    // Graphs nest in attributes of nodes; no real model does so ten deep.
    if (++depth > 40)
      reader.fail("subgraphs nested too deep");
    while (std::optional<Field> field = reader.next())
      use(*field);
    --depth;
  }

  void expectBytes(const Field &f) {
    if (f.wireType != 2 && error.empty())
      error = "field " + std::to_string(f.number) + " should be a message";
  }

  /// A repeated number, packed or not.
  template <typename Use> void numbers(const Field &f, uint32_t wire, Use use) {
    if (f.wireType == wire)
      return use(f.value);
    if (f.wireType != 2)
      return;
    Reader reader(f.bytes, file.data(), error);
    if (wire == 0) {
      while (!reader.atEnd()) {
        std::optional<uint64_t> value = reader.varint();
        if (!value)
          return;
        use(*value);
      }
      return;
    }
    size_t width = wire == 1 ? 8 : 4;
    if (f.bytes.size() % width) {
      reader.fail("a list of numbers with a part of one");
      return;
    }
    for (size_t i = 0; i < f.bytes.size(); i += width)
      use(width == 8 ? support::endian::read64le(f.bytes.data() + i)
                     : support::endian::read32le(f.bytes.data() + i));
  }

  static float asFloat(uint64_t bits) {
    uint32_t low = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &low, sizeof value);
    return value;
  }

  std::pair<StringRef, int64_t> opset(StringRef bytes) {
    std::pair<StringRef, int64_t> result{"", 0};
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        result.first = f.bytes;
      if (f.number == 2)
        result.second = static_cast<int64_t>(f.value);
    });
    return result;
  }

  Graph graph(StringRef bytes) {
    Graph result;
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        result.nodes.push_back(node(f.bytes));
      else if (f.number == 2)
        result.name = f.bytes;
      else if (f.number == 5)
        result.initializers.push_back(tensor(f.bytes));
      else if (f.number == 11)
        result.inputs.push_back(valueInfo(f.bytes));
      else if (f.number == 12)
        result.outputs.push_back(valueInfo(f.bytes));
      else if (f.number == 15)
        result.hasSparse = true;
    });
    return result;
  }

  Node node(StringRef bytes) {
    Node result;
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        result.inputs.push_back(f.bytes);
      else if (f.number == 2)
        result.outputs.push_back(f.bytes);
      else if (f.number == 3)
        result.name = f.bytes;
      else if (f.number == 4)
        result.opType = f.bytes;
      else if (f.number == 5)
        result.attributes.push_back(attribute(f.bytes));
      else if (f.number == 7)
        result.domain = f.bytes;
    });
    return result;
  }

  Attribute attribute(StringRef bytes) {
    Attribute a;
    fields(bytes, [&](const Field &f) {
      switch (f.number) {
      case 1:
        a.name = f.bytes;
        break;
      case 2:
        a.f = asFloat(f.value);
        break;
      case 3:
        a.i = static_cast<int64_t>(f.value);
        break;
      case 4:
        a.s = f.bytes;
        break;
      case 5:
        a.t = std::make_shared<Tensor>(tensor(f.bytes));
        break;
      case 6:
        a.g = std::make_shared<Graph>(graph(f.bytes));
        break;
      case 7:
        numbers(f, 5, [&](uint64_t v) { a.floats.push_back(asFloat(v)); });
        break;
      case 8:
        numbers(f, 0,
                [&](uint64_t v) { a.ints.push_back(static_cast<int64_t>(v)); });
        break;
      case 9:
        a.strings.push_back(f.bytes);
        break;
      case 20:
        a.type = static_cast<int32_t>(f.value);
        break;
      case 21:
        a.reference = f.bytes;
        break;
      default:
        break;
      }
    });
    return a;
  }

  Tensor tensor(StringRef bytes) {
    Tensor t;
    auto typed = [&](const Field &f, uint32_t wire) {
      t.valuesField = f.number;
      numbers(f, wire, [&](uint64_t v) { t.values.push_back(v); });
    };
    fields(bytes, [&](const Field &f) {
      switch (f.number) {
      case 1:
        numbers(f, 0,
                [&](uint64_t v) { t.dims.push_back(static_cast<int64_t>(v)); });
        break;
      case 2:
        t.dataType = static_cast<int32_t>(f.value);
        break;
      case 4:
        typed(f, 5);
        break;
      case 5:
      case 7:
      case 11:
        typed(f, 0);
        break;
      case 6:
        t.hasStrings = true;
        break;
      case 8:
        t.name = f.bytes;
        break;
      case 9:
        t.hasRaw = true;
        t.raw = f.bytes;
        break;
      case 10:
        typed(f, 1);
        break;
      case 13:
        t.externalData.push_back(entry(f.bytes));
        break;
      case 14:
        t.external = f.value == 1;
        break;
      default:
        break;
      }
    });
    return t;
  }

  std::pair<StringRef, StringRef> entry(StringRef bytes) {
    std::pair<StringRef, StringRef> result;
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        result.first = f.bytes;
      if (f.number == 2)
        result.second = f.bytes;
    });
    return result;
  }

  ValueInfo valueInfo(StringRef bytes) {
    ValueInfo info;
    auto dimension = [&](const Field &f) {
      int64_t size = -1;
      fields(f.bytes, [&](const Field &d) {
        if (d.number == 1)
          size = static_cast<int64_t>(d.value);
      });
      info.dims.push_back(size < 0 ? -1 : size);
    };
    auto tensorType = [&](const Field &f) {
      if (f.number == 1)
        info.elementType = static_cast<int32_t>(f.value);
      if (f.number == 2) {
        info.hasShape = true;
        fields(f.bytes, [&](const Field &d) {
          if (d.number == 1)
            dimension(d);
        });
      }
    };
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        info.name = f.bytes;
      if (f.number == 2)
        fields(f.bytes, [&](const Field &type) {
          if (type.number != 1)
            return;
          info.isTensor = true;
          fields(type.bytes, tensorType);
        });
    });
    return info;
  }

  Function function(StringRef bytes) {
    Function result;
    fields(bytes, [&](const Field &f) {
      if (f.number == 1)
        result.name = f.bytes;
      else if (f.number == 4)
        result.inputs.push_back(f.bytes);
      else if (f.number == 5)
        result.outputs.push_back(f.bytes);
      else if (f.number == 7)
        result.nodes.push_back(node(f.bytes));
      else if (f.number == 10)
        result.domain = f.bytes;
      else if (f.number == 11)
        result.defaults.push_back(attribute(f.bytes));
    });
    return result;
  }
};

} // namespace

Expected<Model> foresight::onnx::wire::parseModel(StringRef bytes) {
  Parser parser(bytes);
  Model model = parser.model();
  if (!parser.error.empty())
    return createStringError(inconvertibleErrorCode(), parser.error);
  return model;
}
