// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/call_image.h"

#include <algorithm>
#include <cstring>

#include "shim/observe/capsule/values_text.h"
#include "shim/observe/torch/storage_data.h"

namespace nanwatch {
namespace {

constexpr size_t kAlignment = 8;  // of a safetensors header

c10::ScalarType TypeOf(const c10::TensorImpl& tensor) {
  return c10::typeMetaToScalarType(tensor.dtype());
}

void WriteSizes(c10::IntArrayRef sizes, JsonText* json) {
  json->Open('[');
  for (const int64_t size : sizes) json->Integer(size);
  json->Close(']');
}

// Elements one after the other, in the order of their indices.
void CopyElements(const TensorView& view, size_t element, unsigned char* to) {
  const auto* from = static_cast<const unsigned char*>(view.data);
  int64_t index[wire::kShapeDimsMax] = {};
  for (int64_t done = 0; done < view.numel; ++done) {
    int64_t at = 0;
    for (int d = 0; d < view.ndim; ++d) at += index[d] * view.strides[d];
    std::memcpy(to, from + at * static_cast<int64_t>(element), element);
    to += element;
    for (int d = view.ndim - 1; d >= 0 && ++index[d] == view.sizes[d]; --d) index[d] = 0;
  }
}

}  // namespace

// `arguments`: a bit for each. Calls `each` with the places of their tensors.
template <class Each>
void CallImage::ForEachWritten(uint64_t arguments, Each each) const {
  for (size_t i = 0; i < call_.arguments.size() && i < 64; ++i) {
    if ((arguments >> i & 1) == 0) continue;
    const ArgumentNote& argument = call_.arguments[i];
    for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) each(t);
  }
}

CallImage::CallImage(const CallNote& call, const BadOutput* outputs, int count)
    : call_(call), storage_of_(call.tensors.size(), -1) {
  for (uint32_t i = 0; i < call.tensors.size(); ++i) AddTensor(i);
  for (const ArgumentNote& argument : call.arguments) {
    if (argument.kind == ArgumentKind::kUnsupported) why_not_ = argument.why_not;
  }
  if (why_not_ != nullptr) return;
  AddWritten();
  if (why_not_ == nullptr) AddOutputs(outputs, count);
  for (const Storage& storage : storages_) bytes_ += storage.reach.end - storage.reach.begin;
  for (const Output& output : outputs_) bytes_ += output.bytes;
}

void CallImage::AddTensor(uint32_t place) {
  const WeakTensor& held = call_.tensors[place];
  const c10::TensorImpl* tensor = TensorOf(held);
  if (tensor == nullptr) {
    if (held._unsafe_get_target() != c10::UndefinedTensorImpl::singleton()) {
      why_not_ = "an argument was gone when the op ended";
    }
    return;
  }
  if (!IsPlainOnCpu(*tensor) || DtypeName(TypeOf(*tensor))[0] == '\0') {
    why_not_ = "an argument is no ordinary dense tensor";
    return;
  }
  const c10::StorageImpl* storage = tensor->storage().unsafeGetStorageImpl();
  const Reach reach = ReachOf(*tensor);
  if (reach.end > storage->nbytes() || (reach.end != 0 && DataOf(*storage) == nullptr)) {
    why_not_ = "the memory of an argument was taken away";
    return;
  }
  const auto known =
      std::find_if(storages_.begin(), storages_.end(),
                   [storage](const Storage& each) { return each.storage == storage; });
  storage_of_[place] = static_cast<int>(known - storages_.begin());
  if (known == storages_.end()) {
    storages_.push_back({.storage = storage, .reach = reach, .images = {}});
  } else if (reach.end != reach.begin) {
    Reach& all = known->reach;
    const bool was_empty = all.begin == all.end;
    all.begin = was_empty ? reach.begin : std::min(all.begin, reach.begin);
    all.end = was_empty ? reach.end : std::max(all.end, reach.end);
  }
}

// What the op has overwritten is put back, where it was kept.
void CallImage::AddWritten() {
  for (const BeforeImage& image : call_.images) {
    const c10::TensorImpl* tensor = TensorOf(call_.tensors[image.tensor]);
    const Reach reach = tensor != nullptr ? ReachOf(*tensor) : Reach{};
    if (tensor == nullptr || tensor->storage().unsafeGetStorageImpl() != image.storage ||
        reach.begin != image.begin || reach.end != image.end) {
      why_not_ = "the op has changed the shape or the memory of an argument";
      return;
    }
    Storage& storage = StorageOf(image.tensor);
    const bool overlaps = std::any_of(storage.images.begin(), storage.images.end(),
                                      [&image](const BeforeImage& other) {
                                        return image.begin < other.end && other.begin < image.end;
                                      });
    storage.lost |= overlaps;
    if (!overlaps && image.begin != image.end) storage.images.push_back(image);
  }
  ForEachWritten(call_.op->updates | call_.op->rewrites, [this](uint32_t t) {
    if (storage_of_[t] >= 0 && !HasImage(t)) StorageOf(t).lost = true;
  });
  ForEachWritten(call_.op->overwrites, [this](uint32_t t) {
    if (SharesStorage(call_, t) && !HasImage(t)) StorageOf(t).lost = true;
  });
}

bool CallImage::HasImage(uint32_t place) const {
  return std::any_of(call_.images.begin(), call_.images.end(),
                     [place](const BeforeImage& image) { return image.tensor == place; });
}

// By its memory: what is told of a buffer may have another tensor than the op was given.
bool CallImage::Is(uint32_t place, const PlainTensor& plain) const {
  const c10::TensorImpl* tensor = TensorOf(call_.tensors[place]);
  if (tensor == nullptr || tensor->storage().unsafeGetStorageImpl() != plain.storage) return false;
  const Reach reach = ReachOf(*tensor);
  return reach.begin == plain.byte_begin && reach.end == plain.byte_end;
}

void CallImage::AddOutputs(const BadOutput* outputs, int count) {
  outputs_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const TensorView& view = outputs[i].tensor.view;
    if (view.ndim > wire::kShapeDimsMax || outputs[i].tensor.gpu >= 0) {
      why_not_ = "what the op left cannot be kept";
      return;
    }
    Output output{.bad = &outputs[i], .data = nullptr};
    ForEachWritten(call_.op->updates | call_.op->rewrites | call_.op->overwrites,
                   [this, &output](uint32_t t) {
                     if (Is(t, output.bad->tensor)) output.argument_tensor = static_cast<int>(t);
                   });
    const auto element = static_cast<size_t>(ElementBytes(view.type));
    output.bytes = static_cast<uint64_t>(view.numel) * element;
    outputs_.push_back(std::move(output));
  }
}

void CallImage::Describe(JsonText* json) const {
  DescribeArguments(json);
  DescribeTensors(json);
  DescribeStorages(json);
  DescribeOutputs(json);
}

void CallImage::DescribeArguments(JsonText* json) const {
  const auto& schema = call_.op->schema->arguments();
  json->Key("arguments").Open('[');
  for (size_t i = 0; i < call_.arguments.size(); ++i) {
    const ArgumentNote& argument = call_.arguments[i];
    if (argument.kind == ArgumentKind::kValue && i < schema.size()) {
      WriteValue(argument.value, *schema[i].real_type(), json);
      continue;
    }
    const bool is_list = argument.kind == ArgumentKind::kTensors;
    if (is_list) json->Open('[');
    for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) {
      if (storage_of_[t] < 0) {
        json->Null();
      } else {
        json->Open('{').Key("tensor").Integer(t).Close('}');
      }
    }
    if (is_list) json->Close(']');
  }
  json->Close(']');
}

void CallImage::DescribeTensors(JsonText* json) const {
  json->Key("tensors").Open('[');
  for (size_t t = 0; t < call_.tensors.size(); ++t) {
    if (storage_of_[t] < 0) {
      json->Null();
      continue;
    }
    const c10::TensorImpl& tensor = *TensorOf(call_.tensors[t]);
    json->Open('{').Key("storage").Integer(storage_of_[t]);
    json->Key("offset").Integer(tensor.storage_offset());
    WriteSizes(tensor.sizes(), &json->Key("size"));
    WriteSizes(tensor.strides(), &json->Key("stride"));
    json->Key("dtype").Text(DtypeName(TypeOf(tensor)));
    json->Key("conj").Bool(tensor.key_set().has(c10::DispatchKey::Conjugate));
    json->Key("neg").Bool(tensor.key_set().has(c10::DispatchKey::Negative));
    json->Key("wrapped_number").Bool(tensor.is_wrapped_number()).Close('}');
  }
  json->Close(']');
}

void CallImage::DescribeStorages(JsonText* json) const {
  json->Key("storages").Open('[');
  for (const Storage& storage : storages_) {
    const char* from = storage.lost ? "after" : storage.images.empty() ? "unchanged" : "before";
    json->Open('{').Key("bytes").Integer(static_cast<int64_t>(storage.storage->nbytes()));
    json->Key("begin").Integer(static_cast<int64_t>(storage.reach.begin));
    json->Key("end").Integer(static_cast<int64_t>(storage.reach.end));
    json->Key("content").Text(from).Close('}');
  }
  json->Close(']');
}

void CallImage::DescribeOutputs(JsonText* json) const {
  json->Key("outputs").Open('[');
  for (const Output& output : outputs_) {
    json->Open('{');
    if (output.argument_tensor >= 0) {
      json->Key("argument_tensor").Integer(output.argument_tensor);
    } else {
      json->Key("return").Integer(output.bad->index);
    }
    json->Key("dtype").Text(DtypeName(output.bad->tensor.view.type));
    WriteSizes({output.bad->tensor.view.sizes, static_cast<size_t>(output.bad->tensor.view.ndim)},
               &json->Key("size"));
    json->Close('}');
  }
  json->Close(']');
}

void CallImage::AddHeader() {
  JsonText json;
  uint64_t at = 0;
  const auto add = [&json, &at](const std::string& name, uint64_t bytes) {
    json.Key(name).Open('{').Key("dtype").Text("U8").Key("shape").Open('[');
    json.Integer(static_cast<int64_t>(bytes)).Close(']').Key("data_offsets").Open('[');
    json.Integer(static_cast<int64_t>(at)).Integer(static_cast<int64_t>(at + bytes));
    json.Close(']').Close('}');
    at += bytes;
  };
  json.Open('{');
  for (size_t i = 0; i < storages_.size(); ++i) {
    add("storage." + std::to_string(i), storages_[i].reach.end - storages_[i].reach.begin);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    add("output." + std::to_string(i), outputs_[i].bytes);
  }
  json.Close('}');
  std::string text = json.text();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = text.size();  // little-endian on every machine that we build for
  header_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  header_ += text;
}

void CallImage::AddStoragePieces(const Storage& storage, std::vector<iovec>* pieces) const {
  const auto* base = static_cast<const unsigned char*>(DataOf(*storage.storage));
  const auto add = [pieces](const unsigned char* data, uint64_t bytes) {
    if (bytes != 0) pieces->push_back({const_cast<unsigned char*>(data), bytes});
  };
  std::vector<BeforeImage> images = storage.images;
  std::sort(images.begin(), images.end(),
            [](const BeforeImage& a, const BeforeImage& b) { return a.begin < b.begin; });
  uint64_t at = storage.reach.begin;
  for (const BeforeImage& image : images) {
    add(base + at, image.begin - at);
    add(call_.bytes.data() + image.at, image.end - image.begin);
    at = image.end;
  }
  add(base + at, storage.reach.end - at);
}

std::vector<iovec> CallImage::Pieces() {
  AddHeader();
  std::vector<iovec> pieces = {{header_.data(), header_.size()}};
  for (const Storage& storage : storages_) AddStoragePieces(storage, &pieces);
  for (Output& output : outputs_) {
    output.data = std::make_unique<unsigned char[]>(output.bytes);
    CopyElements(output.bad->tensor.view,
                 static_cast<size_t>(ElementBytes(output.bad->tensor.view.type)),
                 output.data.get());
    pieces.push_back({output.data.get(), output.bytes});
  }
  return pieces;
}

}  // namespace nanwatch
