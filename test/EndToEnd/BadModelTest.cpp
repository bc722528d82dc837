//===- BadModelTest.cpp - Models that cannot be compiled ------------------===//
//
// Each case gives one error that names file, node or tensor, rule and fix, the
// exit code of docs/errors.md, and no output file.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <cstring>
#include <random>
#include <sys/stat.h>

using namespace foresight::test;

namespace {

constexpr int kUsage = 2, kBadInput = 3, kUnsupported = 4, kResource = 6;

/// Protobuf: a length-delimited field whose bytes are `text`.
std::string field(int number, const std::string &text) {
  return std::string() + static_cast<char>(number << 3 | 2) +
         static_cast<char>(text.size()) + text;
}

/// Replaces all of `from` by `to`, which is as long: the lengths that protobuf
/// writes stay right.
int replaceAll(std::string &bytes, const std::string &from,
               const std::string &to) {
  EXPECT_EQ(from.size(), to.size());
  int count = 0;
  for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos;
       at += to.size(), ++count)
    bytes.replace(at, from.size(), to);
  return count;
}

class BadModel : public testing::Test {
protected:
  static constexpr const char *kShard = "model-00001-of-00003.safetensors";

  /// Copies opt-mini's ONNX file and links or copies its data.
  void copyModel(bool data = true) {
    for (const fs::directory_entry &entry :
         fs::directory_iterator(source("examples/opt-mini"))) {
      std::string name = entry.path().filename();
      bool isData = entry.path().extension() == ".safetensors";
      if (name == "expected.safetensors" || (isData && !data))
        continue;
      if (isData || name == "model.onnx" || entry.path().extension() == ".json")
        fs::copy_file(entry.path(), folder / name);
    }
  }
  std::string onnx() { return folder / "model.onnx"; }
  void edit(const std::string &name,
            const std::function<void(std::string &)> &change) {
    std::string bytes = readFile(folder / name);
    change(bytes);
    writeFile(folder / name, bytes);
  }

  ProcessResult compile(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), tool("foresight-compile"));
    arguments.insert(arguments.end(), {"-q", "-o", out()});
    return run(arguments);
  }
  std::string out() { return outputs / "m.fsb"; }
  /// Compiles what must fail so, and leave nothing.
  void refused(const std::vector<std::string> &arguments, int exitCode,
               const std::vector<std::string> &parts) {
    expectError(compile(arguments), "foresight-compile", exitCode, parts);
    EXPECT_EQ(outputs.names(), std::vector<std::string>());
  }

  TemporaryFolder folder, outputs;
};

TEST_F(BadModel, MissingFile) {
  refused({folder / "no.onnx"}, kBadInput, {"no.onnx", "no such file"});
}

TEST_F(BadModel, NotAFile) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string &path :
       {folder / "pipe", std::string("/dev/null"), std::string("/dev/zero")}) {
    SCOPED_TRACE(path);
    refused({path}, kBadInput, {path, "regular file"});
  }
}

TEST_F(BadModel, EmptyFile) {
  writeFile(onnx(), "");
  refused({onnx()}, kBadInput, {"model.onnx"});
}

TEST_F(BadModel, RandomBytes) {
  std::mt19937 random(7);
  for (int size : {1, 100, 100000}) {
    std::string bytes;
    for (int i = 0; i < size; ++i)
      bytes += static_cast<char>(random());
    writeFile(onnx(), bytes);
    refused({onnx()}, kBadInput, {"model.onnx"});
  }
}

TEST_F(BadModel, NotOnnx) {
  writeFile(onnx(), "{\"model_type\": \"opt\"}\n");
  refused({onnx()}, kBadInput, {"model.onnx"});
}

TEST_F(BadModel, TruncatedFile) {
  copyModel();
  std::string whole = readFile(onnx());
  for (size_t keep : {whole.size() - 1, whole.size() / 2, size_t{1000}}) {
    writeFile(onnx(), whole.substr(0, keep));
    refused({onnx()}, kBadInput, {"model.onnx"});
  }
}

TEST_F(BadModel, MissingExternalData) {
  copyModel(/*data=*/false);
  refused({onnx()}, kBadInput, {kShard});
}

TEST_F(BadModel, ShortExternalData) {
  copyModel();
  edit(kShard, [](std::string &bytes) { bytes.resize(bytes.size() / 2); });
  refused({onnx()}, kBadInput, {kShard});
}

TEST_F(BadModel, OverlappingExternalData) {
  copyModel();
  edit("model.onnx", [](std::string &bytes) {
    // The offsets of external data are text: move a tensor into another.
    const std::string key = field(1, "offset") + '\x12';
    size_t first = bytes.find(key);
    ASSERT_NE(first, std::string::npos);
    for (size_t at = first;
         (at = bytes.find(key, at + 1)) != std::string::npos;) {
      const auto length = static_cast<uint8_t>(bytes[at + key.size()]);
      if (length != static_cast<uint8_t>(bytes[first + key.size()]))
        continue;
      std::string other = bytes.substr(at + key.size() + 1, length);
      std::string moved = std::to_string(std::stoll(other) + 2);
      if (moved.size() != length)
        continue;
      bytes.replace(at + key.size() + 1, length, moved);
      return;
    }
    FAIL() << "no two offsets of equal length";
  });
  refused({onnx()}, kBadInput, {"overlap"});
}

TEST_F(BadModel, ExternalDataOutsideOfTheFolder) {
  copyModel();
  edit("model.onnx", [](std::string &bytes) {
    EXPECT_GT(replaceAll(bytes, kShard, "../model-0001-of-3.safetensors00"), 0);
  });
  refused({onnx()}, kBadInput, {"../model-0001-of-3.safetensors00"});
  // That flag is for links: what a model file says is not to be trusted more.
  refused({onnx(), "--allow-links"}, kBadInput, {"outside the model's folder"});
}

TEST_F(BadModel, ExternalDataOutsideOfTheFolderByAbsolutePath) {
  copyModel();
  edit("model.onnx", [](std::string &bytes) {
    EXPECT_GT(replaceAll(bytes, kShard, "/model-00001-of-003.safetensors0"), 0);
  });
  refused({onnx()}, kBadInput, {"/model-00001-of-003.safetensors0"});
}

TEST_F(BadModel, ExternalDataOutsideOfTheFolderByLink) {
  TemporaryFolder elsewhere;
  copyModel();
  fs::rename(folder / kShard, elsewhere / kShard);
  fs::create_symlink(elsewhere / kShard, folder / kShard);
  refused({onnx()}, kBadInput, {kShard, "link", "--allow-links"});
  for (const std::string &input : {onnx(), folder.path().string()}) {
    if (input != onnx())
      fs::remove(onnx());
    refused({input}, kBadInput, {kShard, "link", "--allow-links"});
    ProcessResult allowed =
        run({tool("foresight-compile"), input, "--allow-links",
             "--emit=foresight", "-q", "-o", out()});
    EXPECT_EQ(allowed.exitCode, 0) << allowed.errors;
    fs::remove(out());
  }
}

/// snapshots/REVISION/FILE links to blobs/HASH: what the hub's cache looks
/// like.
TEST_F(BadModel, LinksOfTheHuggingFaceCacheAreFollowed) {
  copyModel();
  fs::path repository = folder / "models--example--opt-mini";
  fs::create_directories(repository / "blobs");
  fs::create_directories(repository / "snapshots/0123abcd");
  int blob = 0;
  for (const char *name :
       {"model.onnx", "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
        "config.json", "tokenizer.json", "model.safetensors.index.json"}) {
    std::string hash = "hash" + std::to_string(blob++);
    fs::rename(folder / name, repository / "blobs" / hash);
    fs::create_symlink("../../blobs/" + hash,
                       repository / "snapshots/0123abcd" / name);
  }
  for (std::string input :
       {"/snapshots/0123abcd/model.onnx", "/snapshots/0123abcd"}) {
    ProcessResult result =
        run({tool("foresight-compile"), repository.string() + input,
             "--emit=foresight", "-q", "-o", out()});
    EXPECT_EQ(result.exitCode, 0) << result.errors;
  }
}

TEST_F(BadModel, NanWeight) {
  copyModel();
  edit(kShard, [](std::string &bytes) {
    uint64_t header;
    std::memcpy(&header, bytes.data(), sizeof header);
    size_t data = 8 + header;
    // An f16 NaN, in the middle of the data.
    size_t at = data + ((bytes.size() - data) / 4) * 2;
    bytes[at] = 0x01;
    bytes[at + 1] = 0x7e;
  });
  for (const std::string &input : {onnx(), folder.path().string()})
    refused({input, "--sparsity=none"}, kBadInput, {"weight", "NaN"});
}

TEST_F(BadModel, OperatorThatOptDoesNotHave) {
  copyModel();
  edit("model.onnx", [](std::string &bytes) {
    EXPECT_GT(replaceAll(bytes, field(4, "Softmax"), field(4, "Sigmoid")), 0);
  });
  refused({onnx()}, kUnsupported,
          {"model.onnx", "node '", "is not a part of OPT"});
}

TEST_F(BadModel, OperatorThatDoesNotExist) {
  copyModel();
  edit("model.onnx", [](std::string &bytes) {
    EXPECT_GT(replaceAll(bytes, field(4, "Softmax"), field(4, "Softmix")), 0);
  });
  refused({onnx()}, kUnsupported, {"Softmix"});
}

TEST_F(BadModel, QuantisedGraph) {
  refused({source("test/fixtures/exports/ort_dynamic_quant/model.onnx")},
          kUnsupported, {"model.onnx", "MatMulInteger", "quantis"});
}

TEST_F(BadModel, FolderWithoutAModel) {
  refused({folder.path()}, kBadInput, {folder.path()});
}

TEST_F(BadModel, FolderOfAnotherFamily) {
  copyModel();
  edit("config.json", [](std::string &bytes) {
    EXPECT_EQ(
        replaceAll(bytes, "\"model_type\": \"opt\"", "\"model_type\": \"xyz\""),
        1);
  });
  refused({folder.path(), "--emit=foresight"}, kUnsupported,
          {"config.json", "xyz"});
}

TEST_F(BadModel, FolderWithDamagedConfig) {
  copyModel();
  edit("config.json", [](std::string &bytes) { bytes.resize(50); });
  refused({folder.path()}, kBadInput, {"config.json"});
}

TEST_F(BadModel, FolderWithTruncatedShard) {
  copyModel();
  edit(kShard, [](std::string &bytes) { bytes.resize(bytes.size() - 2); });
  fs::remove(onnx());
  refused({folder.path()}, kBadInput, {kShard});
}

TEST_F(BadModel, DamagedTokenizer) {
  copyModel();
  edit("tokenizer.json", [](std::string &bytes) { bytes.resize(1000); });
  refused({onnx()}, kBadInput, {"tokenizer.json"});
}

TEST_F(BadModel, Profiles) {
  const std::string model = source("examples/opt-mini");
  const std::string profile = folder / "profile.json";
  struct Case {
    const char *text, *part;
  };
  const Case cases[] = {
      {"{", "profile.json"},
      {"{\"format\": 2}", "format"},
      {"{\"format\": 1, \"model\": {\"hidden_size\": 768, \"ffn_dim\": [3072], "
       "\"layers\": 12}, \"layers\": []}",
       "768"},
      {"{\"format\": 1, \"model\": {\"hidden_size\": 384, \"ffn_dim\": [1536], "
       "\"layers\": 8}, \"layers\": [{\"layer\": 0, \"rule\": \"guess\"}]}",
       "guess"},
      {"{\"format\": 1, \"model\": {\"hidden_size\": 384, \"ffn_dim\": [1536], "
       "\"layers\": 8}, \"layers\": [{\"layer\": 8, \"rule\": \"skip\"}]}",
       "8"},
      {"{\"format\": 1, \"model\": {\"hidden_size\": 384, \"ffn_dim\": [1536], "
       "\"layers\": 8}, \"layers\": [{\"layer\": 0, \"rule\": \"proof\", "
       "\"bits\": 12}]}",
       "12"},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(test.text);
    writeFile(profile, test.text);
    refused({model, "--profile=" + profile}, kBadInput,
            {"profile.json", test.part});
  }
  refused({model, "--profile=" + (folder / "none.json")}, kBadInput,
          {"none.json"});
}

TEST_F(BadModel, MlirFile) {
  writeFile(folder / "m.mlir", "module { foresight.nonsense }\n");
  refused({folder / "m.mlir"}, kBadInput, {"m.mlir:1:"});
  writeFile(folder / "m.mlir", "module {}\n");
  refused({folder / "m.mlir"}, kBadInput, {"m.mlir"});
}

TEST_F(BadModel, CommandLines) {
  const std::string model = source("examples/opt-mini/model.onnx");
  const std::pair<std::vector<std::string>, const char *> cases[] = {
      {{}, "no model"},
      {{model, model}, "two inputs"},
      {{model, "--nonsense=1"}, "--nonsense"},
      {{model, "--sparsity=some"}, "none, exact, predicted"},
      {{model, "--dtype=f8"}, "auto, f32, f16, bf16"},
      {{model, "--target=cpu:z80"}, "z80"},
      {{model, "--target=tpu"}, "tpu"},
      {{model, "--margin=2"}, "--sparsity=predicted"},
      {{model, "--sparsity=predicted", "--margin=many"}, "many"},
      {{model, "--max-seq=0"}, "--max-seq"},
      {{model, "--max-seq=1025"}, "1024"},
      {{model, "--shape=opt-125m"}, "exclude"},
      {{"--shape=opt-125m"}, "--weights"},
      {{"--shape=opt-125m", "--weights=random"}, "synthetic:"},
      {{"--shape=opt-9t", "--weights=synthetic:1"}, "opt-9t"},
      {{model, "--emit=everything"}, "bundle"},
      {{model, "--dtype=f16", "--dtype=f32"}, "given twice"},
      {{model, "--profile"}, "needs a value"},
  };
  for (const auto &[arguments, part] : cases) {
    SCOPED_TRACE(part);
    // "--profile" must stay last.
    std::vector<std::string> command = {tool("foresight-compile"), "-q", "-o",
                                        out()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    expectError(run(command), "foresight-compile", kUsage, {part});
    EXPECT_EQ(outputs.names(), std::vector<std::string>());
  }
}

/// A slip that would cost the model.
TEST_F(BadModel, OutputThatIsRead) {
  copyModel();
  const std::string profile = folder / "profile.json";
  writeFile(profile, readFile(source("test/fixtures/profile-two-layers.json")));
  fs::create_symlink("model.onnx", folder / "link");
  for (const char *name :
       {"model.onnx", "link", kShard, "profile.json", "tokenizer.json"}) {
    SCOPED_TRACE(name);
    const std::string before = readFile(folder / name);
    ProcessResult result = run({tool("foresight-compile"), onnx(), "-q",
                                "--profile=" + profile, "-o", folder / name});
    expectError(result, "foresight-compile", kUsage, {name, "which is read"});
    EXPECT_TRUE(readFile(folder / name) == before);
  }
}

TEST_F(BadModel, OutputThatCannotBeWritten) {
  const std::string model = source("examples/opt-mini/model.onnx");
  expectError(run({tool("foresight-compile"), model, "-q", "-o",
                   folder / "no/such/folder/m.fsb"}),
              "foresight-compile", kResource, {"m.fsb"});
  expectError(run({tool("foresight-compile"), model, "-q", "--emit=foresight",
                   "-o", "/dev/full"}),
              "foresight-compile", kResource, {"/dev/full"});
}

} // namespace
