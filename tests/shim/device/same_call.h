// SPDX-License-Identifier: Apache-2.0
// Whether two pointers to functions are the same by the calling convention: as many parameters,
// each as wide, pointers where pointers are; a pointer to a function is as any. The results, which
// are enums or void, are both there or not.
#pragma once

#include <type_traits>

namespace nanwatch::device {

template <class Ours, class Theirs>
constexpr bool kSame =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
constexpr bool SameCall(OurResult (*)(Ours...), TheirResult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return std::is_void_v<OurResult> == std::is_void_v<TheirResult> && (kSame<Ours, Theirs> && ...);
  }
}

}  // namespace nanwatch::device
