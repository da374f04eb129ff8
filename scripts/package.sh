#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages of nanwatch, in dist/.
#
#   scripts/package.sh wheel|deb|tar [--all-torches] [--torch PYTHON]... [--build DIR] [--out DIR]
#
# --torch PYTHON adds the observer for another torch: that of this Python; can be repeated. The one for .venv's torch is
# always in. --all-torches adds those for the newest torch of each minor version from 2.6 on: it downloads some 8 GB,
# keeps 5 GB of them in build/torches, and takes about two minutes for each. A call that was
# stopped can be repeated: what it has downloaded or built is kept. Programs are linked statically, so that they run on
# hosts with an older glibc than this one. With --build an existing build tree is packaged as it is: quick, but only good
# for this machine's release.
# Several words, for example 'wheel tar', make several packages of one build.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "package: $*" >&2; exit 1; }

kinds=() torches=() all_torches=false build="" out=dist
while (($#)); do
  case $1 in
    wheel | deb | tar) kinds+=("$1"); shift ;;
    --torch | --build | --out)
      (($# > 1)) || fail "$1 needs a value"
      case $1 in --torch) torches+=("$2") ;; --build) build=$2 ;; --out) out=$2 ;; esac
      shift 2
      ;;
    --all-torches) all_torches=true; shift ;;
    -h | --help) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "'$1' is unknown; see --help" ;;
  esac
done
((${#kinds[@]})) || fail "say what to make: wheel, deb or tar"
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}
mkdir -p "$out"
out=$(cd "$out" && pwd)

if [[ -z $build ]]; then
  scripts/setup.sh
  build=build/package
  mkdir -p build
  echo "package: building in $build (some minutes)"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_UNITY_BUILD=ON -DNANWATCH_TESTS=OFF \
    -DNANWATCH_STATIC=ON -DNANWATCH_PYTHON:FILEPATH="$python" >"$build.log" || { cat "$build.log" >&2; fail "cmake failed"; }
  cmake --build "$build"
fi
[[ -x $build/bin/nanwatch ]] || fail "$build is no build tree of nanwatch"

# What every package has: bin, lib and share, as they lie in a prefix.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
env -u DESTDIR cmake --install "$build" --prefix "$stage/prefix" >/dev/null
rm -rf "$stage/prefix/share/nanwatch/scripts/package"
if $all_torches; then
  has=()
  for observer in "$stage/prefix/lib/nanwatch/libnanwatch_observer-"*.so; do
    minor=${observer##*observer-}
    has+=(--without "${minor%.so}")
  done
  "$python" scripts/package/torches.py --into build/torches "${has[@]}" >"$stage/torches" || fail "not every torch could be had"
  mapfile -t -O "${#torches[@]}" torches <"$stage/torches"
fi
for number in "${!torches[@]}"; do
  torch=${torches[number]}
  echo "package: observer $((number + 1)) of ${#torches[@]}, for the torch of $torch"
  scripts/build-observer.sh --no-setup --python "$torch" --prefix "$stage/prefix" ||
    fail "the observer for $torch could not be built (the reason stands above); the same command again goes on from there"
done
# As `cmake --install` does with the first.
strip --strip-unneeded "$stage/prefix/lib/nanwatch/"*.so
version=$("$stage/prefix/bin/nanwatch" --version --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["version"])')
machine=$(uname -m)

make_tar() {
  local name=nanwatch-$version-linux-$machine
  cp -a "$stage/prefix" "$stage/$name"
  tar --sort=name --owner=0 --group=0 --numeric-owner -C "$stage" -czf "$out/$name.tar.gz.partial" "$name"
  mv "$out/$name.tar.gz.partial" "$out/$name.tar.gz"
  echo "package: $out/$name.tar.gz"
}

make_wheel() { "$python" scripts/package/wheel.py --prefix "$stage/prefix" --version "$version" --out "$out"; }

make_deb() {
  local root=$stage/deb home=usr/lib/nanwatch tool=$stage/prefix/bin/nanwatch
  command -v cpack >/dev/null || fail "cpack is missing; it comes with cmake"
  mkdir -p "$root"/usr/{bin,lib/systemd,share/bash-completion/completions,share/zsh/vendor-completions,share/fish/vendor_completions.d}
  cp -a "$stage/prefix" "$root/$home"
  ln -s ../lib/nanwatch/bin/nanwatch ../lib/nanwatch/bin/nanwatchd "$root/usr/bin/"
  cp -a scripts/package/systemd/user scripts/package/systemd/system "$root/usr/lib/systemd/"
  "$tool" completion bash >"$root/usr/share/bash-completion/completions/nanwatch"
  "$tool" completion zsh >"$root/usr/share/zsh/vendor-completions/_nanwatch"
  "$tool" completion fish >"$root/usr/share/fish/vendor_completions.d/nanwatch.fish"
  "$python" scripts/package/man_pages.py --bin "$stage/prefix/bin" --version "$version" --out "$root/usr/share/man/man1"
  "$python" scripts/package/debian_files.py --version "$version" --root "$root"
  find "$root" -type d -exec chmod 755 {} +
  find "$root" -type f -not -perm /111 -exec chmod 644 {} +
  find "$root" -name '*.so' -exec chmod 644 {} +
  cpack --config scripts/package/cpack.cmake -B "$stage/cpack" -D CPACK_INSTALLED_DIRECTORIES="$root;/" \
    -D CPACK_PACKAGE_VERSION="$version" >"$stage/cpack.log" || { cat "$stage/cpack.log" >&2; fail "cpack failed"; }
  for file in "$stage"/cpack/*.deb; do
    mv "$file" "$out/"
    echo "package: $out/${file##*/}"
  done
}

for kind in "${kinds[@]}"; do "make_$kind"; done
